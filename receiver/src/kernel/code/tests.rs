use std::collections::HashMap;

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    Casts,
    flow::Flow,
    instruction::{
        ADD, ADD_REGISTER, AND_REGISTER, CALL, EXIT, IF_ANY, IF_OTHER, Instruction, JUMP, LOAD_ADDRESS, LOAD_WORD,
        MOVE_REGISTER, MOVE_WORD,
    },
    sections, settle,
    shorten::{self, Addresses},
};
use crate::kernel::object::OBJECT;

/// `BPF_LDX | BPF_MEM | BPF_DW` and `BPF_STX | BPF_MEM | BPF_DW`.
const LOAD: u8 = 0x79;
const STORE: u8 = 0x7b;
/// `BPF_JMP | BPF_JEQ`, of a constant and of a register.
const IF_EQUAL: u8 = 0x15;
const IF_EQUAL_REGISTER: u8 = 0x1d;
/// `BPF_ALU64 | BPF_AND` and `BPF_RSH`, of a constant.
const AND: u8 = 0x57;
const SHIFT: u8 = 0x77;
/// The helper that tells the CPU.
const CPU: i32 = 8;
/// What stands where globals are, one after the other.
const GLOBALS: [u32; 3] = [0, 32, u32::MAX];
/// Bytes from one global's address to the next.
const APART: u64 = 0x1_0000_0000;

fn code(opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { opcode, destination, source, offset, immediate }
}

/// Both halves of an address.
fn address(register: u8) -> [Instruction; 2] {
    [code(LOAD_ADDRESS, register, 0, 0, 0), code(0, 0, 0, 0, 0)]
}

fn flow(program: &[Instruction]) -> Flow {
    Flow::of(&program.iter().flat_map(|code| code.bytes()).collect::<Vec<_>>()).expect("a program")
}

/// What is left of a program where addresses at some places are those of globals, without what does nothing.
fn shortened(program: &[Instruction], addresses: &Addresses) -> Vec<Instruction> {
    let mut flow = flow(program);
    shorten::programs(&mut flow, addresses);
    flow.instructions.into_iter().filter(|code| *code != Instruction::NOTHING).collect()
}

const END: Instruction = Instruction { opcode: EXIT, destination: 0, source: 0, offset: 0, immediate: 0 };

#[test]
fn a_field_takes_one_load() {
    let [first, second] = address(1);
    let sum = [code(LOAD_WORD, 1, 1, 0, 0), code(MOVE_REGISTER, 2, 8, 0, 0), code(ADD_REGISTER, 2, 1, 0, 0)];
    let field = [&[first, second], &sum[..], &[code(LOAD, 0, 2, 4, 0), END]].concat();
    let offset = Addresses::from([(0, Some(32))]);
    assert_eq!(shortened(&field, &offset), [code(LOAD, 0, 8, 36, 0), END]);
    assert_eq!(shortened(&field, &Addresses::from([(0, None)])), field, "an address that is not known");
    let far = Addresses::from([(0, Some(32_766))]);
    assert_eq!(
        shortened(&field, &far),
        [code(MOVE_REGISTER, 2, 8, 0, 0), code(ADD, 2, 0, 0, 32_766), code(LOAD, 0, 2, 4, 0), END]
    );
}

#[test]
fn a_bit_field_takes_a_load_and_a_mask() {
    let place = [code(MOVE_WORD, 1, 0, 0, 3 << 16 | 129), code(MOVE_REGISTER, 2, 1, 0, 0), code(AND, 2, 0, 0, 0xffff)];
    let byte = [code(MOVE_REGISTER, 3, 8, 0, 0), code(ADD_REGISTER, 3, 2, 0, 0), code(0x71, 0, 3, 0, 0)];
    let mask = [code(SHIFT, 1, 0, 0, 16), code(AND_REGISTER, 0, 1, 0, 0), END];
    let shorter = [code(0x71, 0, 8, 129, 0), code(MOVE_WORD, 1, 0, 0, 3), code(AND_REGISTER, 0, 1, 0, 0), END];
    assert_eq!(shortened(&[&place[..], &byte, &mask].concat(), &Addresses::new()), shorter);
}

#[test]
fn a_bit_is_asked_for_at_once() {
    let asked = [code(MOVE_WORD, 1, 0, 0, 3), code(AND_REGISTER, 1, 2, 0, 0), code(IF_OTHER, 1, 0, 1, 0)];
    let (ways, kept) = ([code(MOVE_WORD, 0, 0, 0, 1), END], [code(MOVE_REGISTER, 0, 1, 0, 0), END]);
    let at_once = [&[code(IF_ANY, 2, 0, 1, 3)], &ways[..]].concat();
    assert_eq!(shortened(&[&asked[..], &ways].concat(), &Addresses::new()), at_once);
    let bits = [&asked[..], &kept].concat();
    assert_eq!(shortened(&bits, &Addresses::new()), bits, "somebody wants the bits themselves");
}

#[test]
fn what_a_register_holds_is_not_put_there_again() {
    let twice = [code(MOVE_WORD, 1, 0, 0, 7), code(STORE, 10, 1, -8, 0), code(MOVE_WORD, 1, 0, 0, 7)];
    let [first, stored, _] = twice;
    let rest = [code(STORE, 10, 1, -16, 0), END];
    assert_eq!(shortened(&[&twice[..], &rest].concat(), &Addresses::new()), [&[first, stored], &rest[..]].concat());
}

#[test]
fn what_an_atomic_operation_brings_back_is_not_known() {
    // `BPF_STX | BPF_ATOMIC | BPF_DW`, a sum without what was there before, with it, and an exchange of what is expected.
    let program = |operation, asked| {
        let operands = [code(MOVE_WORD, 0, 0, 0, 1), code(MOVE_WORD, 2, 0, 0, 1), code(0xdb, 7, 2, 0, operation)];
        let switch = [code(IF_EQUAL, asked, 0, 0, 1), code(STORE, 10, asked, -8, 0), END];
        [&operands[..], &switch].concat()
    };
    let decided = |operation, asked| {
        let left = shortened(&program(operation, asked), &Addresses::new());
        !left.iter().any(|code| code.opcode == IF_EQUAL)
    };
    assert_eq!(
        [(0x00, 2), (0x01, 2), (0xf1, 2), (0xf1, 0)].map(|(operation, asked)| decided(operation, asked)),
        [true, false, true, false]
    );
}

#[test]
fn two_loads_from_one_field_take_none_to_get_there() {
    let there = [code(MOVE_WORD, 1, 0, 0, 56), code(MOVE_REGISTER, 2, 7, 0, 0), code(ADD_REGISTER, 2, 1, 0, 0)];
    let both = [code(LOAD, 0, 2, 0, 0), code(LOAD, 2, 2, 8, 0), code(ADD_REGISTER, 0, 2, 0, 0), END];
    let shorter = [code(LOAD, 0, 7, 56, 0), code(LOAD, 2, 7, 64, 0), code(ADD_REGISTER, 0, 2, 0, 0), END];
    assert_eq!(shortened(&[&there[..], &both].concat(), &Addresses::new()), shorter);
    // Whoever gets the sum itself wants all of it.
    let kept = [code(LOAD, 0, 2, 0, 0), code(STORE, 10, 2, -8, 0), END];
    let sum = [code(MOVE_REGISTER, 2, 7, 0, 0), code(ADD, 2, 0, 0, 56)];
    assert_eq!(shortened(&[&there[..], &kept].concat(), &Addresses::new()), [&sum[..], &kept].concat());
}

#[test]
fn switches_are_decided_where_both_ways_are_had_elsewhere() {
    let [first, second] = address(1);
    let program = |value: u32| {
        let switch = [first, second, code(LOAD_WORD, 1, 1, 0, 0), code(IF_EQUAL, 1, 0, 2, 0)];
        let other = [code(IF_OTHER, 8, 0, 1, 7), code(MOVE_WORD, 6, 0, 0, 3), code(MOVE_REGISTER, 0, 6, 0, 0), END];
        shortened(&[&switch[..], &other].concat(), &Addresses::from([(0, Some(value))]))
    };
    let other = [code(IF_OTHER, 8, 0, 1, 7), code(MOVE_WORD, 6, 0, 0, 3), code(MOVE_REGISTER, 0, 6, 0, 0), END];
    assert_eq!(program(1), other, "on");
    // Off, nothing else leads to what is left out, which the verifier would refuse.
    assert_eq!(program(0).len(), 6, "{:?}", program(0));
}

#[test]
fn what_is_not_understood_stays() {
    let long = code(0x06, 0, 0, 0, 1);
    assert!(Flow::of(&[long, END].map(Instruction::bytes).concat()).is_none(), "a long jump");
    assert!(Flow::of(&code(JUMP, 0, 0, 7, 0).bytes()).is_none(), "a jump to nowhere");
    assert!(Flow::of(&[0; 7]).is_none(), "no instruction");
    assert!(Flow::of(&[code(0x8d, 1, 0, 0, 0), END].map(Instruction::bytes).concat()).is_none(), "a call by register");
    assert!(Flow::of(&[code(0xe5, 0, 0, 0, 0), END].map(Instruction::bytes).concat()).is_none(), "a bounded loop");
}

/// What a program leaves behind: what it returned and stored, by where.
type Trace = (u64, Vec<(u64, u64)>);

/// Runs a program whose jumps all go on, with these registers.
fn run(flow: &Flow, addresses: &Addresses, mut registers: [u64; 11]) -> Trace {
    let mut stored = Vec::new();
    let mut place = 0;
    while place < flow.instructions.len() {
        let Instruction { opcode, destination, source, offset, immediate } = flow.instructions[place];
        let (to, from) = (usize::from(destination), usize::from(source));
        let at = |register: usize| registers[register].wrapping_add_signed(offset.into());
        let (constant, mut jumps) = (i64::from(immediate).cast_unsigned(), false);
        match opcode {
            EXIT => break,
            JUMP => jumps = true,
            IF_EQUAL => jumps = registers[to] == constant,
            IF_OTHER => jumps = registers[to] != constant,
            IF_ANY => jumps = registers[to] & constant != 0,
            IF_EQUAL_REGISTER => jumps = registers[to] == registers[from],
            MOVE_WORD => registers[to] = immediate.cast_unsigned().into(),
            MOVE_REGISTER => registers[to] = registers[from],
            ADD => registers[to] = registers[to].wrapping_add(constant),
            ADD_REGISTER => registers[to] = registers[to].wrapping_add(registers[from]),
            AND => registers[to] &= constant,
            AND_REGISTER => registers[to] &= registers[from],
            // The machine looks at six bits of what it is to shift by.
            SHIFT => registers[to] >>= constant & 63,
            LOAD_WORD | LOAD => registers[to] = loaded(opcode, at(from)),
            STORE => stored.push((at(to), registers[from])),
            // What is in the argument's registers afterwards is nobody's.
            CALL => (0..6).for_each(|register| registers[register] = place as u64 * 77 + register as u64),
            LOAD_ADDRESS => {
                let global = addresses.get(&place).copied().flatten();
                let global = global.and_then(|value| GLOBALS.iter().position(|one| *one == value));
                registers[to] = global.map_or(flow.constant(place), |global| (global as u64 + 1) * APART);
                place += 1;
            }
            other => panic!("{other:x}"),
        }
        place = if jumps { flow.target(place).expect("a place") } else { place + 1 };
    }
    (registers[0], stored)
}

/// What is in memory: globals in their places, and anything else elsewhere.
fn loaded(opcode: u8, address: u64) -> u64 {
    match GLOBALS.get((address / APART).wrapping_sub(1) as usize) {
        Some(value) if opcode == LOAD_WORD && address.is_multiple_of(APART) => u64::from(*value),
        _ => address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xffff,
    }
}

/// An instruction, or two; of addresses whether they are a global's.
fn any_code() -> impl Strategy<Value = (Vec<Instruction>, Option<u32>)> {
    let register = || 0_u8..8;
    let small = || select(vec![0_i32, 1, 8, 32, -1]);
    let one = prop_oneof![
        (register(), small()).prop_map(|(to, value)| code(MOVE_WORD, to, 0, 0, value)),
        (register(), register()).prop_map(|(to, from)| code(MOVE_REGISTER, to, from, 0, 0)),
        (register(), small()).prop_map(|(to, value)| code(ADD, to, 0, 0, value)),
        (register(), register()).prop_map(|(to, from)| code(ADD_REGISTER, to, from, 0, 0)),
        (select(vec![LOAD, LOAD_WORD]), register(), register(), select(vec![0_i16, 0, 8]))
            .prop_map(|(opcode, to, from, offset)| code(opcode, to, from, offset, 0)),
        (register(), register()).prop_map(|(to, from)| code(STORE, to, from, 8, 0)),
        (select(vec![IF_EQUAL, IF_OTHER]), register(), 0_i16..6, small())
            .prop_map(|(opcode, register, offset, value)| code(opcode, register, 0, offset, value)),
        (select(vec![AND, SHIFT]), register(), select(vec![0_i32, 1, 8, 0xffff, -1, 70]))
            .prop_map(|(opcode, to, value)| code(opcode, to, 0, 0, value)),
        (register(), register()).prop_map(|(to, from)| code(AND_REGISTER, to, from, 0, 0)),
        (register(), register(), 0_i16..6).prop_map(|(to, from, offset)| code(IF_EQUAL_REGISTER, to, from, offset, 0)),
        (0_i16..4).prop_map(|offset| code(JUMP, 0, 0, offset, 0)),
        Just(code(CALL, 0, 0, 0, CPU)),
        Just(END),
    ];
    let global = (register(), select(GLOBALS.to_vec())).prop_map(|(to, value)| (address(to).to_vec(), Some(value)));
    prop_oneof![6 => one.prop_map(|code| (vec![code], None)), 2 => global]
}

/// Instructions, each jump of which goes to a whole one, and where they have addresses.
fn any_program() -> impl Strategy<Value = (Vec<Instruction>, Addresses)> {
    vec(any_code(), 1..60).prop_map(|parts| {
        let starts: Vec<usize> = parts
            .iter()
            .scan(0, |at, (codes, _)| Some(std::mem::replace(at, *at + codes.len())))
            .chain([parts.iter().map(|(codes, _)| codes.len()).sum()])
            .collect();
        let mut program = Vec::new();
        let mut addresses = Addresses::new();
        for (number, (codes, global)) in parts.iter().enumerate() {
            if global.is_some() {
                addresses.insert(starts[number], *global);
            }
            let aimed = |code: &Instruction| {
                let target = starts[(number + 1 + code.offset.unsigned_abs() as usize).min(parts.len())];
                let offset = if code.jumps() { (target - starts[number] - 1) as i16 } else { code.offset };
                Instruction { offset, ..*code }
            };
            program.extend(codes.iter().map(aimed));
        }
        program.push(END);
        (program, addresses)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn shorter_programs_do_the_same(
        (program, addresses) in any_program(),
        registers in any::<[u16; 11]>(),
    ) {
        let registers = registers.map(u64::from);
        let before = flow(&program);
        let expected = run(&before, &addresses, registers);
        let mut after = flow(&program);
        shorten::programs(&mut after, &addresses);
        prop_assert_eq!(run(&after, &addresses, registers), expected);
        // Nothing is left that no way leads to, which the verifier refuses.
        let reached = after.reached(&before.roots());
        prop_assert!(reached.iter().all(|reached| *reached));
    }
}

#[test]
fn nothing_in_the_object_is_left_without_a_way_to_it() {
    let values: HashMap<&str, u32> = HashMap::from([
        ("owner.by", 0),
        ("signal.latency", 1),
        ("signal.transmit", 0),
        ("packets.by", 0),
        ("sk_buff.tstamp", 32),
        ("sock.__sk_common.skc_v6_daddr", 56),
        ("sk_buff.tstamp_type..sk_buff.mono_delivery_time", 3 << 16 | 129),
    ]);
    let mut object = OBJECT.to_vec();
    settle(&mut object, Casts::default(), &values).expect("an object");
    let mut needless = 0;
    for section in sections(OBJECT).expect("an object") {
        let [before, after] = [OBJECT, &object].map(|object| Flow::of(&object[section.clone()]).expect("programs"));
        let (had, has) = (before.reached(&before.roots()), after.reached(&before.roots()));
        assert_eq!(had, has, "in {section:?}");
        let nothing = |flow: &Flow| flow.instructions.iter().filter(|code| **code == Instruction::NOTHING).count();
        needless += nothing(&after) - nothing(&before);
    }
    assert!(needless > 500, "{needless} instructions are needless");
}
