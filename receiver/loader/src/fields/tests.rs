//! Field declarations in linked objects, and their resolution in the fixtures' kernels.

use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    write::{Object, Symbol, SymbolSection},
};
use proptest::prelude::*;

use super::*;
use crate::btf::tests::{KERNELS, running_kernel};

/// The committed eBPF object.
const LINKED: &[u8] = crate::object::OBJECT;
/// The source file that declares the fields.
const SOURCE: &str = include_str!("../../../../receiver-ebpf/src/kernel/fields.rs");

fn field(symbol: &str, size: u32) -> FieldDeclaration {
    FieldDeclaration { symbol: symbol.to_owned(), size }
}

/// Returns an object with one section of globals, given as names and bytes.
fn object(endianness: Endianness, section: &str, globals: &[(&str, &[u8])]) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, endianness);
    let section = object.add_section(Vec::new(), section.as_bytes().to_vec(), SectionKind::ReadOnlyData);
    for (name, bytes) in globals {
        let value = object.append_section_data(section, bytes, 1);
        object.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value,
            size: bytes.len() as u64,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
    object.write().expect("a sound object")
}

#[test]
fn declarations_are_read_from_a_linked_object() {
    let mut expected = declared_by_source();
    expected.sort_by(|one, other| one.symbol.cmp(&other.symbol));
    assert_eq!(declared(LINKED).expect("a sound object"), expected);
}

#[test]
fn declarations_are_read_in_both_byte_orders_and_only_from_their_section() {
    let little = object(Endianness::Little, FIELDS, &[("a.b", &[4, 0, 0, 0]), ("a.c.d", &[0; 4])]);
    let big = object(Endianness::Big, FIELDS, &[("a.b", &[0, 0, 0, 4]), ("a.c.d", &[0; 4])]);
    for object in [little, big] {
        assert_eq!(declared(&object).expect("a sound object"), [field("a.b", 4), field("a.c.d", 0)]);
    }
    let other = object(Endianness::Little, ".constants", &[("signal.latency", &[0; 4])]);
    assert_eq!(declared(&other).expect("a sound object"), []);
}

#[test]
fn invalid_declarations_are_errors_with_the_symbol() {
    let refusal = |name, bytes| {
        let object = object(Endianness::Little, FIELDS, &[(name, bytes)]);
        declared(&object).expect_err("no declaration").to_string()
    };
    let short: &[u8] = &[0; 2];
    insta::assert_snapshot!(refusal("tstamp", &[0; 4]), @r#"the eBPF object declares "tstamp" in `.constants.fields`: the name is not a struct and a path"#);
    insta::assert_snapshot!(refusal("sk_buff.", &[0; 4]), @r#"the eBPF object declares "sk_buff." in `.constants.fields`: the name is not a struct and a path"#);
    insta::assert_snapshot!(refusal("sk_buff.head", short), @r#"the eBPF object declares "sk_buff.head" in `.constants.fields`: the size is not four bytes"#);
    assert!(matches!(declared(b"no object"), Err(DeclarationError::Object(_))));
}

proptest! {
    #[test]
    fn damaged_objects_do_not_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut damaged = LINKED.to_vec();
        for (at, value) in edits {
            let at = at.index(damaged.len());
            damaged[at] = value;
        }
        let _ = declared(&damaged);
    }
}

/// Returns the fields that the source declares, in order.
fn declared_by_source() -> Vec<FieldDeclaration> {
    let declaration = |line: &str| {
        let (head, path) = line.split_once(" = \"")?;
        let (_, kind) = head.split_once(": ")?;
        let value = kind.strip_prefix("Field<").and_then(|kind| kind.split_once(", ")).map(|(_, value)| value);
        let size = match value {
            None if kind.starts_with("BitField<") => 0,
            Some("u8>") => 1,
            Some("u16>") => 2,
            Some("u32>" | "i32>") => 4,
            Some("u64>") => 8,
            Some(word) if word.starts_with("Address<") || word.starts_with("Embedded<") => 8,
            Some("[u64; 2]>") => 16,
            _ => panic!("unknown size of {kind}"),
        };
        Some(field(path.trim_end_matches("\";"), size))
    };
    SOURCE.lines().filter_map(declaration).collect()
}

#[test]
fn fields_resolve_in_every_kernel() {
    let fields = declared_by_source();
    assert_eq!(fields.len(), declared(LINKED).expect("a sound object").len(), "source and object declare equal fields");
    let mut table = String::new();
    for kernel in &KERNELS {
        let btf = Btf::parse(kernel.raw).expect("sound BTF");
        table += &format!("{}\n", kernel.release);
        for resolved in resolve(&btf, &fields) {
            let place = match (&resolved.state, resolved.declaration.size) {
                (FieldState::Present(value), 0) => format!("byte {} mask {:#04x}", value & 0xffff, value >> 16),
                (FieldState::Present(value), size) => format!("byte {value}, {size} bytes"),
                (FieldState::Absent(why), _) => format!("absent: {why}"),
            };
            table += &format!("  {:30} {place}\n", resolved.declaration.symbol);
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn the_running_kernel_has_the_fields_that_all_kernels_have() {
    let Some(raw) = running_kernel() else { return };
    let btf = Btf::parse(&raw).expect("sound BTF");
    let fields = ["sk_buff.tstamp", "sk_buff.head"].map(|symbol| field(symbol, 8));
    for resolved in resolve(&btf, &fields) {
        assert!(matches!(resolved.state, FieldState::Present(_)), "{resolved:?}");
    }
}

/// Returns the resolution of a field in the 6.12 fixture.
fn on_6_12(symbol: &str, size: u32) -> Result<u32, String> {
    let btf = Btf::parse(KERNELS[2].raw).expect("sound BTF");
    let [resolved] = resolve(&btf, &[field(symbol, size)]).try_into().expect("one for one");
    if matches!(resolved.state, FieldState::Absent(_)) {
        assert_eq!((resolved.number(), resolved.offset()), (if size == 0 { 0 } else { ABSENT }, None));
    }
    match resolved.state {
        FieldState::Present(value) => Ok(value),
        FieldState::Absent(why) => Err(why.to_string()),
    }
}

#[test]
fn sizes_must_match_except_for_prefixes_of_aggregates() {
    assert_eq!(on_6_12("sk_buff.tstamp", 8), Ok(32));
    assert_eq!(on_6_12("sk_buff.tstamp", 4), Err("the field has 8 bytes on this kernel, not 4".to_owned()));
    assert_eq!(on_6_12("sk_buff.protocol", 4), Err("the field has 2 bytes on this kernel, not 4".to_owned()));
    assert_eq!(on_6_12("scm_timestamping_internal.ts", 16), Ok(0));
    assert_eq!(on_6_12("scm_timestamping_internal.ts", 48), Ok(0));
    assert_eq!(
        on_6_12("scm_timestamping_internal.ts", 49),
        Err("the field has 48 bytes on this kernel, not 49".to_owned())
    );
    assert_eq!(on_6_12("scm_timestamping_internal.ts.1", 16), Ok(16));
}

#[test]
fn bit_fields_resolve_to_byte_offsets_and_masks() {
    assert_eq!(on_6_12("sk_buff.tstamp_type", 0), Ok(129 | 0b11 << 16));
    let bit_field = "the field is a bit-field of 2 bits on this kernel, not 1 bytes";
    assert_eq!(on_6_12("sk_buff.tstamp_type", 1), Err(bit_field.to_owned()));
    assert_eq!(on_6_12("sk_buff.active_extensions", 0).map(|value| value >> 16), Ok(0xff), "a whole byte");
    let no_bit_field = "the field is no bit-field on this kernel but has 2 bytes";
    assert_eq!(on_6_12("sk_buff.protocol", 0), Err(no_bit_field.to_owned()));
}

#[test]
fn bit_fields_across_bytes_are_absent() {
    let outside = Err(Absence::Bits { offset: 6, width: 3 });
    assert_eq!(bit_field(Extent::Bits { offset: 6, width: 3 }), outside);
    assert!(bit_field(Extent::Bits { offset: 0, width: 0 }).is_err());
    assert!(bit_field(Extent::Bits { offset: 8 << 15, width: 1 }).is_err());
    assert!(bit_field(Extent::Bits { offset: u64::MAX, width: u32::MAX }).is_err());
}

proptest! {
    #[test]
    fn bit_fields_within_a_byte_resolve(byte in 0_u32..=0x7fff, first in 0_u32..8, width in 1_u32..=8) {
        let value = bit_field(Extent::Bits { offset: u64::from(byte * 8 + first), width });
        if first + width > 8 {
            prop_assert!(value.is_err());
        } else {
            let value = value.expect("the bit-field is within a byte");
            prop_assert_eq!(value & 0xffff, byte);
            prop_assert_eq!((value >> 16).count_ones(), width);
            prop_assert_ne!(value, ABSENT);
        }
    }
}
