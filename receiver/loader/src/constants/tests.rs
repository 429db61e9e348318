//! Placeholders in the linked object, and their replacement.

use std::collections::BTreeSet;

use undercurrent_ebpf::abi::{ABSENT, constant};

use super::*;
use crate::{
    fields::{self, Absence, FieldDeclaration, FieldState},
    object::OBJECT,
};

/// Returns the declared fields with a state.
fn resolved(state: &FieldState) -> Vec<ResolvedField> {
    let declarations = fields::declared(OBJECT).expect("a sound object");
    declarations.into_iter().map(|declaration| ResolvedField { declaration, state: state.clone() }).collect()
}

/// Returns the numbers of moves and the offsets of loads in the programs.
fn operands(object: &mut [u8]) -> (BTreeSet<u64>, BTreeSet<i16>) {
    let (mut numbers, mut offsets) = (BTreeSet::new(), BTreeSet::new());
    instructions::for_each(object, |instructions| {
        for pair in instructions.windows(2) {
            let [[opcode, _, low, high, lower @ ..], [.., a, b, c, d]] = pair else { continue };
            if *opcode == MOVE {
                let upper = u32::from_le_bytes([*a, *b, *c, *d]);
                numbers.insert(u64::from(upper) << 32 | u64::from(u32::from_le_bytes(*lower)));
            } else if LOAD.contains(opcode) {
                offsets.insert(i16::from_le_bytes([*low, *high]));
            }
        }
        Ok::<_, object::Error>(())
    })
    .expect("an object");
    (numbers, offsets)
}

fn placeholders(object: &mut [u8]) -> (Vec<u64>, Vec<i16>) {
    let (numbers, offsets) = operands(object);
    let is_marked = |number: &u64| number >> 32 == u64::from(MARK);
    (numbers.into_iter().filter(is_marked).collect(), offsets.into_iter().filter(|offset| *offset < LOADS).collect())
}

#[test]
fn every_declared_number_has_a_placeholder_of_its_own_in_the_object() {
    let settings: Vec<_> = globals::declared(OBJECT, CONSTANTS).expect("a sound object");
    let fields = fields::declared(OBJECT).expect("a sound object").into_iter().map(|field| field.symbol);
    let symbols: Vec<_> = settings.into_iter().map(|(symbol, _)| symbol).chain(fields.clone()).collect();
    let declared: BTreeSet<_> = symbols.iter().map(|symbol| placeholder(symbol)).collect();
    assert_eq!(declared.len(), symbols.len(), "two symbols have one placeholder");
    let (numbers, offsets) = placeholders(&mut OBJECT.to_vec());
    let is_used =
        |symbol: &&String| numbers.contains(&placeholder(symbol)) || offsets.contains(&load(placeholder(symbol)));
    let unused: Vec<_> = symbols.iter().filter(|symbol| !is_used(symbol)).collect();
    assert_eq!(unused, Vec::<&String>::new(), "no program uses them");
}

#[test]
fn no_placeholder_remains_after_all_numbers_are_written() {
    let mut object = OBJECT.to_vec();
    let mut constants = Constants::new(OBJECT, &resolved(&FieldState::Present(1234))).expect("a sound object");
    constants.set("signal.latency", 4711).expect("a setting");
    let (numbers, offsets) = operands(&mut object);
    assert!(!numbers.contains(&4711) && !offsets.contains(&1234), "the test's numbers occur in the object");
    constants.write(&mut object).expect("declared placeholders");
    assert_eq!(placeholders(&mut object), (Vec::new(), Vec::new()));
    let (numbers, offsets) = operands(&mut object);
    assert!(numbers.contains(&4711) && numbers.contains(&1234) && offsets.contains(&1234));
    assert!(numbers.contains(&u64::from(ABSENT)), "the default of the sockets of functions that the user names");
}

#[test]
fn loads_of_missing_fields_keep_a_negative_offset() {
    let absence = Absence::NoBitField { actual: 8 };
    let constants = Constants::new(OBJECT, &resolved(&FieldState::Absent(absence))).expect("a sound object");
    let mut object = OBJECT.to_vec();
    let (_, before) = placeholders(&mut object);
    constants.write(&mut object).expect("declared placeholders");
    assert_eq!(placeholders(&mut object), (Vec::new(), before));
}

#[test]
fn an_unknown_placeholder_or_setting_is_an_error() {
    let mut fields = resolved(&FieldState::Present(8));
    let dropped = fields.pop().expect("a field");
    let mut constants = Constants::new(OBJECT, &fields).expect("a sound object");
    let error = constants.write(&mut OBJECT.to_vec()).expect_err("a field without a number");
    assert!(matches!(error, ConstantError::Placeholder(_)), "{error}");
    assert!(constants.set("signal.unknown", 1).is_err());
    assert!(constants.set(&dropped.declaration.symbol, 1).is_err());
    assert!(matches!(constants.write(&mut b"no object".to_vec()), Err(ConstantError::Declaration(_))));
}

#[test]
fn placeholders_are_hashes_of_their_symbols() {
    // The test vectors of the Internet draft on FNV.
    assert_eq!(placeholder(""), u64::from(MARK) << 32 | 0x811c_9dc5);
    assert_eq!(placeholder("foobar"), u64::from(MARK) << 32 | 0xbf9c_f968);
    assert!(load(u64::MAX) < LOADS && load(0) == i16::MIN);
    assert!(constant::differ(&[0, 1, 2]) && !constant::differ(&[0, 1, u64::from(LOADS.abs_diff(i16::MIN))]));
}

#[test]
fn bit_fields_have_their_mask_and_offset_as_number() {
    let declaration = FieldDeclaration { symbol: "sk_buff.bit".to_owned(), size: 0 };
    let field = ResolvedField { declaration, state: FieldState::Present(129 | 0b11 << 16) };
    assert_eq!((field.number(), field.offset()), (0b11 | 129 << 8, Some(129)));
}
