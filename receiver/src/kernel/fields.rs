//! The kernel fields that the programs read, found in their object and placed by the running kernel's BTF.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionIndex};
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::ABSENT;

use super::btf::{Btf, BtfError, Extent, Member};

/// The section in which the kernel side declares fields.
const SECTION: &str = ".rodata.fields";

/// What stands between the alternatives of a declaration.
const ALTERNATIVE: &str = "..";

/// A field that a program reads, as the object declares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldDeclaration {
    /// The symbol of its global: a struct and a path within it, joined by dots; where kernels differ, alternatives follow
    /// after two dots, best first.
    pub symbol: String,
    /// Bytes that the program reads; zero where it takes the field for a bit-field.
    pub size: u32,
}

/// The object does not declare its fields as it should: it is damaged, or not ours.
#[derive(Debug, thiserror::Error)]
pub enum DeclarationError {
    /// It cannot be read at all.
    #[error("the eBPF object cannot be read")]
    Object(#[from] object::Error),
    /// A symbol in the section of fields is none of a field.
    #[error("the eBPF object declares {symbol:?} as a kernel field: {what}")]
    Symbol {
        /// The symbol.
        symbol: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Why the running kernel has no such field, or none that the program could read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// The BTF does not have it.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// A number or pointer has another size than the program reads.
    #[error("it has {actual} bytes here, not {declared}")]
    Size {
        /// Bytes that the program reads.
        declared: u32,
        /// Bytes that it has.
        actual: u64,
    },
    /// The program takes for a bit-field what has several bytes.
    #[error("it is no bit-field here but has {actual} bytes")]
    NoBitField {
        /// Bytes that it has.
        actual: u64,
    },
    /// The program reads bytes where there is a bit-field.
    #[error("it is a bit-field of {width} bits here, not {declared} bytes")]
    BitField {
        /// Bytes that the program reads.
        declared: u32,
        /// Bits that it has.
        width: u32,
    },
    /// A bit-field does not lie within one byte, or too far from the beginning.
    #[error("its bits {offset} to {} are not within one byte of the first 65536", offset + u64::from(*width))]
    Bits {
        /// Its first bit.
        offset: u64,
        /// How many it has.
        width: u32,
    },
}

/// What the running kernel has for a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldState {
    /// The value for the program's global: the byte offset, and for a bit-field its mask in the upper half.
    Present(u32),
    /// The program does without.
    Absent(Absence),
}

/// A field and what the running kernel has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedField {
    /// The field.
    pub declaration: FieldDeclaration,
    /// What the kernel has.
    pub state: FieldState,
}

/// A field that programs read, and why the running kernel lacks it, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldFact {
    /// The symbol of its global, as in [`FieldDeclaration`].
    pub symbol: String,
    /// Why the kernel lacks it; `None` if the kernel has it.
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
    /// The value for the program's global. An absent bit-field has an empty mask.
    #[must_use]
    pub const fn value(&self) -> u32 {
        match self.state {
            FieldState::Present(value) => value,
            FieldState::Absent(_) if self.declaration.size == 0 => 0,
            FieldState::Absent(_) => ABSENT,
        }
    }
}

/// The fields that an object declares, in the order of their globals; none in an object without the section.
///
/// # Errors
/// When the object is no ELF file, or a symbol in the section is no 32-bit global named by struct and path.
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
            return Err(refused("its name is no struct and path"));
        }
        if symbol.size() != 4 {
            return Err(refused("it has not four bytes"));
        }
        let value = usize::try_from(symbol.address()).ok().and_then(|at| data.get(at..)?.first_chunk::<4>());
        let value = *value.ok_or(refused("it lies outside of its section"))?;
        let size = if little { u32::from_le_bytes(value) } else { u32::from_be_bytes(value) };
        found.push((symbol.address(), FieldDeclaration { symbol: name.to_owned(), size }));
    }
    found.sort_by_key(|(address, _)| *address);
    Ok(found.into_iter().map(|(_, declaration)| declaration).collect())
}

/// Whether a symbol names data of a section, rather than the section itself.
fn is_global_in<'data>(symbol: &impl object::ObjectSymbol<'data>, section: SectionIndex) -> bool {
    symbol.section_index() == Some(section) && symbol.kind() == object::SymbolKind::Data
}

/// Places fields in the running kernel. Given the BTF of a module, its types are known beside the kernel's.
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

/// The first alternative that the kernel has, or why it lacks the best one.
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

/// The offset of a field that the program reads whole, or as the first words of a struct, union or array.
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

/// The offset of a bit-field's byte, and its mask within it in the upper half.
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
    // The format counts from the lowest bit on little-endian machines and from the highest on big-endian ones.
    let shift = if cfg!(target_endian = "little") { first } else { 8 - first - width };
    let mask = ((1_u32 << width) - 1) << shift;
    Ok(u32::from(byte) | mask << 16)
}

#[cfg(test)]
mod tests;
