//! Numbers that the loader writes into instructions: settings, and the offsets of kernel fields.
//!
//! Each number has a symbol in [`CONSTANTS`] or [`FIELDS`]. The compiler encodes a hash of the symbol, the placeholder, in each
//! instruction that uses the number. Before loading, the loader replaces the placeholders. To the verifier the numbers are then
//! constants: it removes the branches that they decide.

/// The section that declares settings. The value of a symbol is the default, 32 bits.
pub const CONSTANTS: &str = ".constants";

/// The section that declares kernel fields. The symbol is the struct and the path of the field, with alternatives for other
/// kernels after `..`. Its value, 32 bits, is the number of bytes to read, zero for a bit-field.
pub const FIELDS: &str = ".constants.fields";

/// The upper half of each placeholder, which no other 64-bit operand in the object has.
pub const MARK: u32 = 0x756e_6463;

/// Returns the placeholder of a symbol: the operand of the 64-bit move that loads its number.
#[must_use]
pub const fn placeholder(symbol: &str) -> u64 {
    (MARK as u64) << 32 | fnv1a(symbol.as_bytes()) as u64
}

/// Placeholders in offsets of load instructions are below this number, an offset that no other load in the object has: the stack
/// of a program begins there.
pub const LOADS: i16 = -512;

/// Returns the placeholder of a field's offset in a load instruction, from the field's [`placeholder`].
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the remainder fits")]
pub const fn load(placeholder: u64) -> i16 {
    i16::MIN + (placeholder % i16::MIN.abs_diff(LOADS) as u64) as i16
}

/// Returns true if the placeholders of fields differ in load instructions too.
#[must_use]
pub const fn differ(placeholders: &[u64]) -> bool {
    let mut one = 0;
    while one < placeholders.len() {
        let mut other = 0;
        while other < one {
            if load(placeholders[one]) == load(placeholders[other]) {
                return false;
            }
            other += 1;
        }
        one += 1;
    }
    true
}

/// Returns the 32-bit FNV-1a hash.
const fn fnv1a(bytes: &[u8]) -> u32 {
    let (mut hash, mut index) = (0x811c_9dc5_u32, 0);
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}
