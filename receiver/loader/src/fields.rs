//! The kernel fields that programs read: declared in the eBPF object, resolved with the running kernel's BTF.

use undercurrent_ebpf::abi::{ABSENT, constant::FIELDS};
use undercurrent_kernel::fields::FieldFact;

use super::{
    btf::{Btf, BtfError, Extent, Member},
    globals::{self, DeclarationError},
};

/// The separator between the alternatives of a declaration.
const ALTERNATIVE: &str = "..";

/// A field declaration in the eBPF object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldDeclaration {
    /// The symbol of the global: a struct and a path within it, joined by dots. Two dots separate the alternatives for
    /// different kernels, best first.
    pub symbol: String,
    /// Bytes that the program reads; zero for a bit-field.
    pub size: u32,
}

/// The reason why programs cannot read a field of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// The BTF lacks the field.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The size of a number or pointer differs from the size that the program reads.
    #[error("the field has {actual} bytes on this kernel, not {declared}")]
    Size {
        /// Bytes that the program reads.
        declared: u32,
        /// Bytes of the field in this kernel.
        actual: u64,
    },
    /// The program reads a bit-field, but the field has several bytes.
    #[error("the field is no bit-field on this kernel but has {actual} bytes")]
    NoBitField {
        /// Bytes of the field in this kernel.
        actual: u64,
    },
    /// The program reads bytes, but the field is a bit-field.
    #[error("the field is a bit-field of {width} bits on this kernel, not {declared} bytes")]
    BitField {
        /// Bytes that the program reads.
        declared: u32,
        /// Width of the bit-field in bits.
        width: u32,
    },
    /// The offset does not fit a load instruction.
    #[error("the field begins at byte {0} of the struct, and programs read the first 32768 bytes")]
    Offset(u32),
    /// A bit-field crosses a byte boundary, or its byte does not fit a load instruction.
    #[error("bits {offset} to {} of the struct are not within one of its first 32768 bytes", offset + u64::from(*width))]
    Bits {
        /// Offset of the first bit.
        offset: u64,
        /// Width in bits.
        width: u32,
    },
}

/// The resolution of a field in the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldState {
    /// The byte offset in the lower half, which fits an `i16`, and the mask of a bit-field in the upper half.
    Present(u32),
    /// The field is missing; programs skip it.
    Absent(Absence),
}

/// A field with its resolution in the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedField {
    /// The declaration in the eBPF object.
    pub declaration: FieldDeclaration,
    /// The resolution in the running kernel.
    pub state: FieldState,
}

impl ResolvedField {
    /// Returns the fact for user space.
    #[must_use]
    pub fn fact(&self) -> FieldFact {
        let absence = match &self.state {
            FieldState::Present(_) => None,
            FieldState::Absent(absence) => Some(absence.to_string()),
        };
        FieldFact { symbol: self.declaration.symbol.clone(), absence }
    }

    /// Returns the number that programs move to a register: the offset or [`ABSENT`]; for a bit-field its mask in the lowest byte and
    /// the offset above, or zero if the field is missing.
    #[must_use]
    pub const fn number(&self) -> u32 {
        match self.state {
            FieldState::Present(value) if self.declaration.size == 0 => value >> 16 | (value & 0xffff) << 8,
            FieldState::Present(value) => value,
            FieldState::Absent(_) if self.declaration.size == 0 => 0,
            FieldState::Absent(_) => ABSENT,
        }
    }

    /// Returns the offset for load instructions; `None` if the field is missing.
    #[must_use]
    pub const fn offset(&self) -> Option<i16> {
        match self.state {
            FieldState::Present(value) => Some((value as u16).cast_signed()),
            FieldState::Absent(_) => None,
        }
    }
}

/// Returns the fields that an object declares, in the order of their globals. Empty if the object lacks the section.
///
/// # Errors
/// If the object is no ELF file, or a symbol in the section is no 32-bit global with a struct and a path as its name.
pub fn declared(object: &[u8]) -> Result<Vec<FieldDeclaration>, DeclarationError> {
    let globals = globals::declared(object, FIELDS)?;
    globals.into_iter().map(|(symbol, size)| FieldDeclaration { symbol, size }.checked()).collect()
}

impl FieldDeclaration {
    fn checked(self) -> Result<Self, DeclarationError> {
        let is_path = |path: &str| path.split('.').count() >= 2 && path.split('.').all(|name| !name.is_empty());
        if self.symbol.split(ALTERNATIVE).all(is_path) {
            return Ok(self);
        }
        Err(DeclarationError::Symbol {
            symbol: self.symbol,
            section: FIELDS,
            what: "the name is not a struct and a path",
        })
    }
}

/// Resolves fields with the running kernel's BTF, or with the BTF of a module, which includes the kernel's types.
#[must_use]
pub fn resolve(btf: &Btf<'_>, declarations: &[FieldDeclaration]) -> Vec<ResolvedField> {
    declarations
        .iter()
        .map(|declaration| {
            let state = place(btf, declaration).map_or_else(FieldState::Absent, FieldState::Present);
            ResolvedField { declaration: declaration.clone(), state }
        })
        .collect()
}

/// Returns true if the running kernel lacks a declared field.
#[must_use]
pub fn lacks(fields: &[ResolvedField], symbol: &str) -> bool {
    let field = fields.iter().find(|field| field.declaration.symbol == symbol);
    field.is_some_and(|field| matches!(field.state, FieldState::Absent(_)))
}

/// Returns the value of the first alternative that the kernel has.
///
/// # Errors
/// If the kernel has none of the alternatives; the error refers to the first one.
fn place(btf: &Btf<'_>, declaration: &FieldDeclaration) -> Result<u32, Absence> {
    let mut alternatives = declaration.symbol.split(ALTERNATIVE).map(|path| place_one(btf, path, declaration.size));
    let best = alternatives.next().unwrap_or_else(|| place_one(btf, &declaration.symbol, declaration.size));
    best.or_else(|absence| alternatives.find_map(Result::ok).ok_or(absence))
}

fn place_one(btf: &Btf<'_>, symbol: &str, size: u32) -> Result<u32, Absence> {
    let (type_name, path) = symbol.split_once('.').unwrap_or((symbol, ""));
    let member = btf.member(type_name, path)?;
    if size == 0 { bit_field(member.extent) } else { bytes(&member, size) }
}

/// Returns the byte offset of a field. Programs may read a prefix of a struct, union or array.
fn bytes(member: &Member, declared: u32) -> Result<u32, Absence> {
    match member.extent {
        Extent::Bytes { offset, size } => {
            let expected = u64::from(declared);
            let fits = if member.aggregate { expected <= size } else { expected == size };
            if !fits {
                return Err(Absence::Size { declared, actual: size });
            }
            if i16::try_from(offset).is_ok() { Ok(offset) } else { Err(Absence::Offset(offset)) }
        }
        Extent::Bits { width, .. } => Err(Absence::BitField { declared, width }),
    }
}

/// Returns the offset of a bit-field's byte, with the mask within that byte in the upper half.
fn bit_field(extent: Extent) -> Result<u32, Absence> {
    let (offset, width) = match extent {
        Extent::Bits { offset, width } => (offset, width),
        Extent::Bytes { offset, size: 1 } => (u64::from(offset) * 8, 8),
        Extent::Bytes { size, .. } => return Err(Absence::NoBitField { actual: size }),
    };
    let outside = Absence::Bits { offset, width };
    let first = (offset % 8) as u32;
    let byte = i16::try_from(offset / 8).map_err(|_| outside.clone())?;
    if width == 0 || first + width > 8 {
        return Err(outside);
    }
    // BTF counts bits from the lowest one on little-endian machines and from the highest one on big-endian machines.
    let shift = if cfg!(target_endian = "little") { first } else { 8 - first - width };
    let mask = ((1_u32 << width) - 1) << shift;
    Ok(u32::from(byte.cast_unsigned()) | mask << 16)
}

#[cfg(test)]
mod tests;
