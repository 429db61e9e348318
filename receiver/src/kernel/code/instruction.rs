//! Instructions, as `include/uapi/linux/bpf.h` and RFC 9669 have them.

/// Bytes of an instruction.
pub const SIZE: usize = 8;

/// `BPF_LD | BPF_DW | BPF_IMM`: room of two instructions.
pub const LOAD_ADDRESS: u8 = 0x18;
/// `BPF_LDX | BPF_MEM | BPF_W`.
pub const LOAD_WORD: u8 = 0x61;
/// `BPF_ALU | BPF_MOV | BPF_K`: 32 bits, with zeros above.
pub const MOVE_WORD: u8 = 0xb4;
/// `BPF_ALU64 | BPF_MOV | BPF_X`.
pub const MOVE_REGISTER: u8 = 0xbf;
/// `BPF_ALU64 | BPF_ADD`, of a constant and of a register.
pub const ADD: u8 = 0x07;
pub const ADD_REGISTER: u8 = 0x0f;
/// `BPF_ALU64 | BPF_AND`, of a register.
pub const AND_REGISTER: u8 = 0x5f;
/// `BPF_JMP | BPF_JNE` and `BPF_JMP | BPF_JSET`, of a constant: whether a register is another number, or has one of its bits.
pub const IF_OTHER: u8 = 0x55;
pub const IF_ANY: u8 = 0x45;
/// `BPF_JMP | BPF_JA`, which goes to the next instruction where its offset is zero.
pub const JUMP: u8 = 0x05;
/// `BPF_JMP | BPF_CALL` and `BPF_JMP | BPF_EXIT`.
pub const CALL: u8 = 0x85;
pub const EXIT: u8 = 0x95;

/// The classes of instructions, the low three bits of their opcodes.
pub mod class {
    pub const LOAD: u8 = 0;
    pub const LOAD_MEMORY: u8 = 1;
    pub const STORE: u8 = 2;
    pub const STORE_REGISTER: u8 = 3;
    pub const WORDS: u8 = 4;
    pub const JUMPS: u8 = 5;
    pub const WORD_JUMPS: u8 = 6;
    pub const DOUBLE_WORDS: u8 = 7;
}

/// `BPF_X`: the operand is a register and no constant.
const REGISTER: u8 = 0x08;
/// `BPF_MEM` of loads' modes, whose mask is 0xe0.
const MEMORY: u8 = 0x60;

/// `BPF_ATOMIC` of stores' modes; its operations are constants, one bit of which is `BPF_FETCH`, and one is `BPF_CMPXCHG`.
const ATOMIC: u8 = 0xc0;
const FETCH: i32 = 0x01;
const EXCHANGE_IF: i32 = 0xf1;

/// How an atomic operation brings back what was in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// In the register that it takes its operand from.
    Anything,
    /// In the first register, which says what is expected there.
    Expecting,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Class, operation and kind of operand.
    pub opcode: u8,
    /// The register that is written, or compared, or has the address that is written to.
    pub destination: u8,
    /// The other register.
    pub source: u8,
    /// Of a jump instructions, of a load or store bytes.
    pub offset: i16,
    /// A constant.
    pub immediate: i32,
}

impl Instruction {
    /// What does nothing, and the verifier takes out.
    pub const NOTHING: Self = Self { opcode: JUMP, destination: 0, source: 0, offset: 0, immediate: 0 };

    /// Takes bytes for an instruction.
    pub const fn read(bytes: [u8; SIZE]) -> Self {
        let [opcode, registers, low, high, a, b, c, d] = bytes;
        Self {
            opcode,
            destination: registers & 0xf,
            source: registers >> 4,
            offset: i16::from_le_bytes([low, high]),
            immediate: i32::from_le_bytes([a, b, c, d]),
        }
    }

    /// Its bytes.
    pub const fn bytes(self) -> [u8; SIZE] {
        let ([low, high], [a, b, c, d]) = (self.offset.to_le_bytes(), self.immediate.to_le_bytes());
        [self.opcode, self.source << 4 | self.destination, low, high, a, b, c, d]
    }

    /// Operations on registers.
    pub const AND: u8 = 0x50;
    pub const SHIFT_RIGHT: u8 = 0x70;
    pub const MOVE: u8 = 0xb0;
    /// Comparisons that jump where both are equal, and where they are not.
    pub const IF_EQUAL: u8 = 0x10;
    pub const IF_OTHER: u8 = 0x50;

    pub const fn class(self) -> u8 {
        self.opcode & 0x7
    }

    pub const fn operation(self) -> u8 {
        self.opcode & 0xf0
    }

    /// Whether it computes with registers.
    pub const fn computes(self) -> bool {
        matches!(self.class(), class::WORDS | class::DOUBLE_WORDS)
    }

    /// Whether its second operand is a register.
    pub const fn takes_register(self) -> bool {
        self.opcode & REGISTER != 0
    }

    /// Whether it moves something to a register as it is.
    pub const fn moves(self) -> bool {
        self.computes() && self.operation() == Self::MOVE
    }

    /// Whether it loads from where a register points.
    pub const fn loads(self) -> bool {
        self.class() == class::LOAD_MEMORY && self.opcode & 0xe0 == MEMORY
    }

    /// Which value in memory an atomic operation brings back; `None` where it brings none, and of what is no such operation.
    pub const fn fetches(self) -> Option<Fetch> {
        match (self.opcode & 0xe0, self.immediate) {
            (ATOMIC, EXCHANGE_IF) => Some(Fetch::Expecting),
            (ATOMIC, operation) if operation & FETCH != 0 => Some(Fetch::Anything),
            _ => None,
        }
    }

    /// Whether a jump is a plain one, or depends on a comparison, and on nothing else.
    pub const fn goes_on(self) -> bool {
        matches!(self.operation(), 0..=0x70 | 0xa0..=0xd0)
    }

    /// Whether it goes elsewhere, always or if something holds.
    pub const fn jumps(self) -> bool {
        matches!(self.class(), class::JUMPS | class::WORD_JUMPS) && !matches!(self.opcode, CALL | EXIT)
    }

    /// Whether it goes elsewhere if a comparison holds.
    pub const fn compares(self) -> bool {
        self.jumps() && self.operation() != 0
    }
}
