//! The kernel fields that programs read: declared in the eBPF object, resolved with the running kernel's BTF.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionIndex};
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::ABSENT;

use super::btf::{Btf, BtfError, Extent, Member};

/// The section of the eBPF object that declares fields.
const SECTION: &str = ".rodata.fields";

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

/// An invalid field declaration: the eBPF object is damaged or foreign.
#[derive(Debug, thiserror::Error)]
pub enum DeclarationError {
    /// The object is not a readable ELF file.
    #[error("cannot read the eBPF object")]
    Object(#[from] object::Error),
    /// A symbol in the field section does not declare a field.
    #[error("the eBPF object declares {symbol:?} as a kernel field: {what}")]
    Symbol {
        /// The symbol.
        symbol: String,
        /// The defect.
        what: &'static str,
    },
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
    /// A bit-field crosses a byte boundary, or its byte offset exceeds 16 bits.
    #[error("bits {offset} to {} of the struct are not within one of its first 65536 bytes", offset + u64::from(*width))]
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
    /// The value for the program's global: the byte offset, and the mask of a bit-field in the upper half.
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

/// A field that programs read, in the form that `doctor` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldFact {
    /// The symbol of the global; see [`FieldDeclaration::symbol`].
    pub symbol: String,
    /// The reason why programs cannot read the field; `None` if they can.
    pub absence: Option<String>,
}

impl From<&ResolvedField> for FieldFact {
    fn from(field: &ResolvedField) -> Self {
        let absence = match &field.state {
            FieldState::Present(_) => None,
            FieldState::Absent(absence) => Some(absence.to_string()),
        };
        Self { symbol: field.declaration.symbol.clone(), absence }
    }
}

impl ResolvedField {
    /// Returns the value for the program's global. A missing bit-field has an empty mask.
    #[must_use]
    pub const fn value(&self) -> u32 {
        match self.state {
            FieldState::Present(value) => value,
            FieldState::Absent(_) if self.declaration.size == 0 => 0,
            FieldState::Absent(_) => ABSENT,
        }
    }
}

/// Returns the fields that an object declares, in the order of their globals. Empty if the object lacks the section.
///
/// # Errors
/// If the object is no ELF file, or a symbol in the section is no 32-bit global with a struct and a path as its name.
pub fn declared(object: &[u8]) -> Result<Vec<FieldDeclaration>, DeclarationError> {
    let file = object::File::parse(object)?;
    let Some(section) = file.section_by_name(SECTION) else { return Ok(Vec::new()) };
    let data = section.data()?;
    let little = file.is_little_endian();
    let mut found = Vec::new();
    for symbol in file.symbols().filter(|symbol| is_global_in(symbol, section.index())) {
        let name = symbol.name()?;
        let refused = |what| DeclarationError::Symbol { symbol: name.to_owned(), what };
        if name.split(ALTERNATIVE).any(|path| path.split('.').count() < 2 || path.split('.').any(str::is_empty)) {
            return Err(refused("the name is not a struct and a path"));
        }
        if symbol.size() != 4 {
            return Err(refused("the size is not four bytes"));
        }
        let value = usize::try_from(symbol.address()).ok().and_then(|at| data.get(at..)?.first_chunk::<4>());
        let value = *value.ok_or(refused("the address is outside of the section"))?;
        let size = if little { u32::from_le_bytes(value) } else { u32::from_be_bytes(value) };
        found.push((symbol.address(), FieldDeclaration { symbol: name.to_owned(), size }));
    }
    found.sort_by_key(|(address, _)| *address);
    Ok(found.into_iter().map(|(_, declaration)| declaration).collect())
}

/// Returns true if a symbol names data in the section; the section also has a symbol.
fn is_global_in<'data>(symbol: &impl object::ObjectSymbol<'data>, section: SectionIndex) -> bool {
    symbol.section_index() == Some(section) && symbol.kind() == object::SymbolKind::Data
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
            if fits { Ok(offset) } else { Err(Absence::Size { declared, actual: size }) }
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
    let byte = u16::try_from(offset / 8).map_err(|_| outside.clone())?;
    if width == 0 || first + width > 8 {
        return Err(outside);
    }
    // BTF counts bits from the lowest one on little-endian machines and from the highest one on big-endian machines.
    let shift = if cfg!(target_endian = "little") { first } else { 8 - first - width };
    let mask = ((1_u32 << width) - 1) << shift;
    Ok(u32::from(byte) | mask << 16)
}

#[cfg(test)]
mod tests;
