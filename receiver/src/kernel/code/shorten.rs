//! Programs without the instructions that known constants make needless: loads of globals, additions to addresses, jumps
//! that are decided, moves of what nobody reads.
//!
//! The compiler knows no offset of a field and no switch, so that it adds and asks. The verifier knows them, and leaves most of
//! that in place. Nothing moves: what is needless is made to do nothing, which the verifier takes out.

use std::collections::BTreeMap;

use super::{
    flow::{Flow, Registers},
    instruction::{
        ADD, ADD_REGISTER, AND_REGISTER, CALL, IF_ANY, IF_OTHER, Instruction, JUMP, LOAD_ADDRESS, LOAD_WORD,
        MOVE_REGISTER, MOVE_WORD, class,
    },
};

/// Each round makes room for the next; the third finds nothing worth its time.
const ROUNDS: usize = 2;

/// The places where an address is put in a register, with the value that stands there for good; `None` where it does not.
pub type Addresses = BTreeMap<usize, Option<u32>>;

/// Shortens programs. `addresses` has every address that is not yet known.
pub fn programs(flow: &mut Flow, addresses: &Addresses) {
    let roots = flow.roots();
    for _ in 0..ROUNDS {
        let before = flow.instructions.clone();
        spread_constants(flow, addresses, &roots);
        while restore_ways(flow, &roots, &before) {}
        test_bits(flow, addresses, &roots);
        load_from_where_it_is(flow);
        drop_unread(flow);
        if flow.instructions == before {
            break;
        }
    }
}

/// What a register is known to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Value(u64),
    /// The address of a global of this value.
    Global(u32),
}

/// What all registers hold.
#[derive(Clone, PartialEq, Eq)]
struct Registry([Known; 16]);

impl Registry {
    const EMPTY: Self = Self([Known::Nothing; 16]);

    fn value(&self, register: u8) -> Option<u64> {
        match self.0[usize::from(register)] {
            Known::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Keeps what is known where control comes by another way too; whether that is less.
    fn meet(&mut self, other: &Self) -> bool {
        let mut less = false;
        for (known, other) in self.0.iter_mut().zip(&other.0) {
            if *known != *other && *known != Known::Nothing {
                *known = Known::Nothing;
                less = true;
            }
        }
        less
    }

    /// Takes note of an instruction.
    fn pass(&mut self, flow: &Flow, place: usize, addresses: &Addresses) {
        let code = flow.instructions[place];
        let (_, writes) = flow.effect(place);
        let mut left = writes;
        while left != 0 {
            self.0[left.trailing_zeros() as usize] = Known::Nothing;
            left &= left - 1;
        }
        let known = match code.opcode {
            _ if flow.is_half(place) => return,
            MOVE_WORD => Known::Value(code.immediate.cast_unsigned().into()),
            LOAD_ADDRESS => match addresses.get(&place) {
                Some(Some(value)) if code.immediate == 0 => Known::Global(*value),
                Some(_) => Known::Nothing,
                None if code.source == 0 => Known::Value(flow.constant(place)),
                None => Known::Nothing,
            },
            _ => return,
        };
        self.0[usize::from(code.destination)] = known;
    }
}

/// What is known where control comes from elsewhere, by place; of where it is not known to come, nothing is said.
struct Entries(Vec<Option<Registry>>);

impl Entries {
    fn of(flow: &mut Flow, addresses: &Addresses, roots: &[usize]) -> Self {
        let mut entries = Self(vec![None; flow.instructions.len()]);
        // Nothing is known where a function begins.
        roots.iter().for_each(|root| entries.0[*root] = Some(Registry::EMPTY));
        while entries.walk(flow, addresses, |_, _, _| {}) {}
        entries
    }

    /// Control comes to a place; whether less is known there than before.
    fn arrive(&mut self, place: usize, registry: &Registry) -> bool {
        match &mut self.0[place] {
            Some(known) => known.meet(registry),
            new => new.replace(registry.clone()).is_none(),
        }
    }

    /// Goes through programs in the order of their places, with what is known before each; `visit` may change the instruction.
    /// Whether another walk would know less.
    fn walk(
        &mut self,
        flow: &mut Flow,
        addresses: &Addresses,
        mut visit: impl FnMut(&mut Flow, usize, &Registry),
    ) -> bool {
        let (mut again, mut current) = (false, None::<Registry>);
        for place in 0..flow.instructions.len() {
            if self.0[place].is_some() {
                if let Some(registry) = &current {
                    self.arrive(place, registry);
                }
                current.clone_from(&self.0[place]);
            }
            let Some(registry) = &mut current else { continue };
            visit(flow, place, registry);
            let code = flow.whole(place).filter(|code| code.jumps() && *code != Instruction::NOTHING);
            // A way that is never taken says nothing of where it leads.
            let taken = code.filter(|code| code.compares()).and_then(|code| decided(code, registry));
            registry.pass(flow, place, addresses);
            if code.is_some() && taken != Some(false) {
                let target = flow.target(place);
                again |= target.is_some_and(|target| self.arrive(target, registry) && target <= place);
            }
            if leaves(flow, place) || taken == Some(true) {
                current = None;
            }
        }
        again
    }
}

/// Puts known constants in the place of loads and in additions, and decides comparisons of them.
fn spread_constants(flow: &mut Flow, addresses: &Addresses, roots: &[usize]) {
    let mut entries = Entries::of(flow, addresses, roots);
    entries.walk(flow, addresses, |flow, place, registry| {
        if !flow.is_half(place) {
            flow.instructions[place] = with_constants(flow.instructions[place], registry);
        }
    });
}

/// Asks for bits at once, where a known constant is their mask.
fn test_bits(flow: &mut Flow, addresses: &Addresses, roots: &[usize]) {
    let (targets, live) = (flow.targets(), flow.live_after());
    Entries::of(flow, addresses, roots).walk(flow, addresses, |flow, place, registry| {
        let Some(Instruction { opcode: AND_REGISTER, destination: mask, source: asked, .. }) = flow.whole(place) else {
            return;
        };
        let Some(Ok(bits)) = registry.value(mask).map(i32::try_from) else { return };
        let next = (place + 1..flow.instructions.len())
            .take_while(|next| !targets[*next])
            .find(|next| flow.instructions[*next] != Instruction::NOTHING);
        let Some(next) = next.filter(|next| live[*next] & 1 << mask == 0) else { return };
        if let Some(code @ Instruction { opcode: IF_OTHER, immediate: 0, .. }) = flow.whole(next)
            && code.destination == mask
        {
            flow.instructions[next] = Instruction { opcode: IF_ANY, destination: asked, immediate: bits, ..code };
            flow.instructions[place] = Instruction::NOTHING;
        }
    });
}

/// Whether control never goes on with the next instruction.
fn leaves(flow: &Flow, place: usize) -> bool {
    let code = flow.instructions[place];
    let stays = code.compares() || code.opcode == CALL || code == Instruction::NOTHING;
    !flow.is_half(place) && code.class() == class::JUMPS && !stays
}

/// An instruction where registers hold what is known.
fn with_constants(code: Instruction, registry: &Registry) -> Instruction {
    match code.opcode {
        // It is there already.
        MOVE_WORD if registry.value(code.destination) == Some(code.immediate.cast_unsigned().into()) => {
            Instruction::NOTHING
        }
        LOAD_WORD if code.offset == 0 => match registry.0[usize::from(code.source)] {
            Known::Global(value) => {
                Instruction { opcode: MOVE_WORD, source: 0, immediate: value.cast_signed(), ..code }
            }
            _ => code,
        },
        // The constant of an addition is taken for a signed one.
        ADD_REGISTER => match registry.value(code.source).map(i32::try_from) {
            Some(Ok(immediate)) if code.source != code.destination => {
                Instruction { opcode: ADD, source: 0, immediate, ..code }
            }
            _ => code,
        },
        _ if code.computes() => match computed(code, registry).map(u32::try_from) {
            Some(Ok(value)) => {
                Instruction { opcode: MOVE_WORD, source: 0, offset: 0, immediate: value.cast_signed(), ..code }
            }
            _ => code,
        },
        _ if code.compares() => match decided(code, registry) {
            Some(true) => Instruction { opcode: JUMP, destination: 0, source: 0, immediate: 0, ..code },
            Some(false) => Instruction::NOTHING,
            None => code,
        },
        _ => code,
    }
}

/// What a computation of 64 bits with constants yields: of those that bit-fields take.
fn computed(code: Instruction, registry: &Registry) -> Option<u64> {
    if code.class() != class::DOUBLE_WORDS || code.offset != 0 {
        return None;
    }
    let operand = || match code.takes_register() {
        true => registry.value(code.source),
        false => Some(i64::from(code.immediate).cast_unsigned()),
    };
    let own = || registry.value(code.destination);
    match code.operation() {
        Instruction::MOVE if code.takes_register() => operand(),
        Instruction::AND => Some(own()? & operand()?),
        Instruction::SHIFT_RIGHT => own()?.checked_shr(operand()?.try_into().ok()?),
        _ => None,
    }
}

/// Whether a comparison of constants holds: of equality, which alone is asked of switches and fields.
fn decided(code: Instruction, registry: &Registry) -> Option<bool> {
    let known = registry.value(code.destination)?;
    let other =
        if code.takes_register() { registry.value(code.source)? } else { i64::from(code.immediate).cast_unsigned() };
    let equal = match code.class() {
        class::JUMPS => known == other,
        _ => known as u32 == other as u32,
    };
    match code.operation() {
        Instruction::IF_EQUAL => Some(equal),
        Instruction::IF_OTHER => Some(!equal),
        _ => None,
    }
}

/// Undoes decisions that took the only way to something, which the verifier refuses; whether there were any.
fn restore_ways(flow: &mut Flow, roots: &[usize], before: &[Instruction]) -> bool {
    let reached = flow.reached(roots);
    let mut restored = false;
    for (place, original) in before.iter().enumerate() {
        let decided = !flow.is_half(place) && original.compares() && flow.instructions[place] != *original;
        let target = (place + 1).checked_add_signed(original.offset.into());
        let ways = [Some(place + 1), target].into_iter().flatten();
        if decided && ways.into_iter().any(|way| reached.get(way) == Some(&false)) {
            flow.instructions[place] = *original;
            restored = true;
        }
    }
    restored
}

/// Loads from the register that an address was copied from, and from where a constant was to bring it.
fn load_from_where_it_is(flow: &mut Flow) {
    let (targets, live) = (flow.targets(), flow.live_after());
    for place in 0..flow.instructions.len() {
        match flow.instructions[place].opcode {
            _ if flow.is_half(place) => {}
            MOVE_REGISTER if flow.instructions[place].offset == 0 => follow_copy(flow, &targets, place),
            ADD => follow_sum(flow, &targets, &live, place),
            _ => {}
        }
    }
}

/// The places after one that control can only come to from there, until something leads elsewhere.
fn straight(flow: &Flow, targets: &[bool], from: usize) -> Vec<usize> {
    let mut places = Vec::new();
    for place in (from + 1..flow.instructions.len()).take_while(|place| !targets[*place]) {
        places.push(place);
        if leaves(flow, place) {
            break;
        }
    }
    places
}

/// Loads from a copy become loads from the original, while both are as they were.
fn follow_copy(flow: &mut Flow, targets: &[bool], place: usize) {
    let Instruction { destination: copy, source: original, .. } = flow.instructions[place];
    for next in straight(flow, targets, place) {
        let code = &mut flow.instructions[next];
        if code.loads() && code.source == copy {
            code.source = original;
        }
        if flow.effect(next).1 & (1 << copy | 1 << original) != 0 {
            return;
        }
    }
}

/// A sum that nothing reads but loads becomes their offsets.
fn follow_sum(flow: &mut Flow, targets: &[bool], live: &[Registers], place: usize) {
    let Instruction { destination, immediate: added, .. } = flow.instructions[place];
    let sum: Registers = 1 << destination;
    let mut loads = Vec::new();
    for next in straight(flow, targets, place) {
        let code = flow.instructions[next];
        let (reads, writes) = flow.effect(next);
        if reads & sum != 0 {
            match i16::try_from(i32::from(code.offset).saturating_add(added)) {
                Ok(offset) if code.loads() => loads.push((next, offset)),
                _ => return,
            }
        }
        if writes & sum != 0 || live[next] & sum == 0 {
            loads.into_iter().for_each(|(load, offset)| flow.instructions[load].offset = offset);
            flow.instructions[place] = Instruction::NOTHING;
            return;
        }
        // Who jumps away may want it there.
        if code.compares() {
            return;
        }
    }
}

/// Takes out what makes what nobody reads.
fn drop_unread(flow: &mut Flow) {
    for (place, live) in flow.live_after().into_iter().enumerate() {
        let code = flow.instructions[place];
        let unread = !flow.is_half(place) && live & 1 << code.destination == 0;
        if unread && (code.computes() || code.opcode == LOAD_ADDRESS) {
            flow.drop(place);
        }
    }
}
