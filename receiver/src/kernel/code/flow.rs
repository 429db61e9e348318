//! Where control goes in a section of programs, and which registers are read again.

use super::instruction::{CALL, EXIT, Fetch, Instruction, JUMP, LOAD_ADDRESS, SIZE, class};

/// Registers, each its bit.
pub type Registers = u16;

const ALL: Registers = 0x7ff;
/// What a call leaves behind.
const CLOBBERED: Registers = 0b0011_1111;
/// How many arguments helpers have, as `include/uapi/linux/bpf.h` numbers them: a look into a map, the monotonic clock, the
/// CPU, the current task's process, its cgroup, what is kept with a socket, a read of memory, TCP's socket, and the current
/// task. Of others it is five at most.
const HELPERS: [(i32, u32); 9] = [(1, 2), (5, 0), (8, 0), (14, 0), (80, 0), (107, 4), (113, 3), (137, 1), (158, 0)];

/// The registers that a call may read.
fn arguments(call: Instruction) -> Registers {
    let helper = HELPERS.iter().find(|(helper, _)| call.source == 0 && call.immediate == *helper);
    let count = helper.map_or(5, |(_, count)| *count);
    ((1 << count) - 1) << 1
}

/// The instructions of a section, each with its place.
pub struct Flow {
    /// By place; the second half of an address has no meaning of its own.
    pub instructions: Vec<Instruction>,
    halves: Vec<bool>,
}

impl Flow {
    /// Takes a section apart; `None` where something is in it that the built-in programs have not.
    pub fn of(section: &[u8]) -> Option<Self> {
        let (chunks, []) = section.as_chunks::<SIZE>() else { return None };
        let instructions: Vec<_> = chunks.iter().map(|bytes| Instruction::read(*bytes)).collect();
        let mut halves = vec![false; instructions.len()];
        for place in 0..instructions.len() {
            if instructions[place].opcode == LOAD_ADDRESS && !halves[place] {
                *halves.get_mut(place + 1)? = true;
            }
        }
        let flow = Self { instructions, halves };
        (0..flow.instructions.len()).all(|place| flow.is_known(place)).then_some(flow)
    }

    fn is_known(&self, place: usize) -> bool {
        let code = self.instructions[place];
        match code.class() {
            _ if self.halves[place] => true,
            class::LOAD => code.opcode == LOAD_ADDRESS,
            class::WORD_JUMPS => code.compares() && code.goes_on() && self.target(place).is_some(),
            class::JUMPS => !code.jumps() || code.goes_on() && self.target(place).is_some(),
            _ => code.destination < 11 && code.source < 11,
        }
    }

    /// The instructions as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.instructions.iter().flat_map(|code| code.bytes()).collect()
    }

    /// Makes an instruction do nothing, an address with its second half.
    pub fn drop(&mut self, place: usize) {
        if self.instructions[place].opcode == LOAD_ADDRESS {
            self.instructions[place + 1] = Instruction::NOTHING;
            self.halves[place + 1] = false;
        }
        self.instructions[place] = Instruction::NOTHING;
    }

    /// The constant that a load of 64 bits has in both its halves.
    pub fn constant(&self, place: usize) -> u64 {
        let half = |place: usize| u64::from(self.instructions[place].immediate.cast_unsigned());
        half(place) | half(place + 1) << 32
    }

    /// An instruction that is no second half of an address.
    pub fn whole(&self, place: usize) -> Option<Instruction> {
        (!self.halves[place]).then(|| self.instructions[place])
    }

    /// Whether an instruction's place is the second half of an address.
    pub fn is_half(&self, place: usize) -> bool {
        self.halves[place]
    }

    /// Where a jump goes.
    pub fn target(&self, place: usize) -> Option<usize> {
        let target = (place + 1).checked_add_signed(self.instructions[place].offset.into())?;
        (target < self.instructions.len()).then_some(target)
    }

    /// Whether something jumps to a place, by place. What does nothing jumps nowhere.
    pub fn targets(&self) -> Vec<bool> {
        let mut targets = vec![false; self.instructions.len()];
        for place in 0..self.instructions.len() {
            let code = self.instructions[place];
            if !self.halves[place] && code.jumps() && code != Instruction::NOTHING {
                self.target(place).into_iter().for_each(|target| targets[target] = true);
            }
        }
        targets
    }

    /// Where control may come from elsewhere: the beginnings of functions.
    pub fn roots(&self) -> Vec<usize> {
        let (mut roots, mut reached) = (Vec::new(), vec![false; self.instructions.len()]);
        for place in 0..reached.len() {
            if !reached[place] {
                roots.push(place);
                self.reach(place, &mut reached);
            }
        }
        roots
    }

    /// Whether control may get to a place from such beginnings, by place.
    pub fn reached(&self, roots: &[usize]) -> Vec<bool> {
        let mut reached = vec![false; self.instructions.len()];
        roots.iter().for_each(|root| self.reach(*root, &mut reached));
        reached
    }

    fn reach(&self, from: usize, reached: &mut [bool]) {
        let mut left = vec![from];
        while let Some(place) = left.pop() {
            if reached.get(place) == Some(&false) {
                reached[place] = true;
                left.extend(self.next(place));
            }
        }
    }

    /// The registers that are read after each instruction before they are written, by place.
    pub fn live_after(&self) -> Vec<Registers> {
        let count = self.instructions.len();
        let mut before = vec![0; count + 1];
        let mut after = vec![0; count];
        loop {
            let mut settled = true;
            for place in (0..count).rev() {
                let live = self.next(place).map(|next| before[next]).fold(0, |all, live| all | live);
                let (reads, writes) = self.effect(place);
                let now = live & !writes | reads;
                settled &= live == after[place] && now == before[place];
                (after[place], before[place]) = (live, now);
            }
            if settled {
                return after;
            }
        }
    }

    /// The places that may come after one. Behind the last, nothing is read.
    fn next(&self, place: usize) -> impl Iterator<Item = usize> {
        let code = self.instructions[place];
        let jumps = !self.halves[place] && code.jumps();
        let falls = self.halves[place] || !matches!(code.opcode, JUMP | EXIT);
        let target = if jumps { self.target(place) } else { None };
        target.into_iter().chain(falls.then_some(place + 1))
    }

    /// The registers that an instruction reads, and those that it writes.
    pub fn effect(&self, place: usize) -> (Registers, Registers) {
        if self.halves[place] {
            return (0, 0);
        }
        let code = self.instructions[place];
        let (destination, source) = (1 << code.destination, 1 << code.source);
        match code.class() {
            class::LOAD => (0, destination),
            class::LOAD_MEMORY => (source, destination),
            class::STORE => (destination, 0),
            class::STORE_REGISTER => match code.fetches() {
                None => (destination | source, 0),
                // The one register says what is expected, and gets what was there.
                Some(Fetch::Expecting) => (destination | source | 1, 1),
                Some(Fetch::Anything) => (destination | source, source),
            },
            class::WORDS | class::DOUBLE_WORDS => {
                let operand = if code.takes_register() { source } else { 0 };
                let own = if code.moves() { 0 } else { destination };
                (operand | own, destination)
            }
            _ => match code.opcode {
                CALL => (arguments(code), CLOBBERED),
                EXIT => (1, ALL),
                _ if code.compares() => (destination | if code.takes_register() { source } else { 0 }, 0),
                _ => (0, 0),
            },
        }
    }
}
