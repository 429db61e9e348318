//! Type records: a head of twelve bytes, and data that depends on the kind.

use std::fmt;

use super::{BtfError, header::word};

/// Bytes of a record's head.
pub(super) const HEAD: usize = 12;
/// Bytes of a member of a struct or union.
pub(super) const MEMBER: usize = 12;
/// Bytes of a function's parameter.
pub(super) const PARAMETER: usize = 8;

/// Bytes of an enumerator.
pub(super) const ENUMERATOR: usize = 8;
/// Bytes of an enumerator of a 64-bit enumeration.
pub(super) const ENUMERATOR64: usize = 12;

/// The kind of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the BTF format defines the names")]
#[repr(u8)]
pub enum Kind {
    Int = 1,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Forward,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Function,
    Prototype,
    Variable,
    DataSection,
    Float,
    DeclarationTag,
    TypeTag,
    Enum64,
}

impl Kind {
    /// Returns the kind with this number.
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Int,
            2 => Self::Pointer,
            3 => Self::Array,
            4 => Self::Struct,
            5 => Self::Union,
            6 => Self::Enum,
            7 => Self::Forward,
            8 => Self::Typedef,
            9 => Self::Volatile,
            10 => Self::Const,
            11 => Self::Restrict,
            12 => Self::Function,
            13 => Self::Prototype,
            14 => Self::Variable,
            15 => Self::DataSection,
            16 => Self::Float,
            17 => Self::DeclarationTag,
            18 => Self::TypeTag,
            19 => Self::Enum64,
            _ => return None,
        })
    }

    /// Returns the bytes of the fixed part after the head, and the bytes of each element.
    const fn layout(self) -> (usize, usize) {
        match self {
            Self::Int | Self::Variable | Self::DeclarationTag => (4, 0),
            Self::Array => (12, 0),
            Self::Struct | Self::Union => (0, MEMBER),
            Self::DataSection => (0, 12),
            Self::Enum64 => (0, ENUMERATOR64),
            Self::Enum => (0, ENUMERATOR),
            Self::Prototype => (0, PARAMETER),
            Self::Pointer
            | Self::Forward
            | Self::Typedef
            | Self::Volatile
            | Self::Const
            | Self::Restrict
            | Self::Function
            | Self::Float
            | Self::TypeTag => (0, 0),
        }
    }

    /// Returns true for kinds that have the layout of the type they refer to: typedefs, qualifiers and tags.
    pub(super) const fn is_modifier(self) -> bool {
        matches!(self, Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag)
    }

    /// Returns true for structs and unions.
    pub(super) const fn has_members(self) -> bool {
        matches!(self, Self::Struct | Self::Union)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Int => "int",
            Self::Pointer => "pointer",
            Self::Array => "array",
            Self::Struct => "struct",
            Self::Union => "union",
            Self::Enum => "enum",
            Self::Forward => "forward declaration",
            Self::Typedef => "typedef",
            Self::Volatile => "volatile",
            Self::Const => "const",
            Self::Restrict => "restrict",
            Self::Function => "function",
            Self::Prototype => "prototype",
            Self::Variable => "variable",
            Self::DataSection => "data section",
            Self::Float => "float",
            Self::DeclarationTag => "declaration tag",
            Self::TypeTag => "type tag",
            Self::Enum64 => "64-bit enum",
        })
    }
}

/// One type record.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    /// Offset in the type section.
    pub at: usize,
    /// The kind; `None` if this reader does not know it.
    pub kind: Option<Kind>,
    /// Offset of the name in the string section.
    pub name: u32,
    /// The kind-specific flag. For a struct: member offsets also contain bit-field widths.
    pub flag: bool,
    /// The size in bytes or the id of the referenced type, depending on the kind.
    pub size_or_type: u32,
    /// The data after the head.
    pub rest: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record at an offset of the type section.
    pub fn read(types: &'a [u8], at: usize, layout: &[u8]) -> Result<Self, BtfError> {
        let cut = BtfError::Malformed { at, what: "a truncated record" };
        let (Some(name), Some(info), Some(size_or_type)) = (word(types, at), word(types, at + 4), word(types, at + 8))
        else {
            return Err(cut);
        };
        let number = (info >> 24) as u8 & 0x7f;
        let kind = Kind::from_number(number);
        let (fixed, element) = kind
            .map(Kind::layout)
            .or_else(|| layout_lengths(layout, number))
            .ok_or(BtfError::UnknownKind { at, kind: number })?;
        // Up to 7.2 the count has 16 bits, and the next eight bits are zero.
        let count = (info & 0x00ff_ffff) as usize;
        let rest = types.get(at + HEAD..).and_then(|rest| rest.get(..fixed + element * count)).ok_or(cut)?;
        Ok(Self { at, kind, name, flag: info >> 31 == 1, size_or_type, rest })
    }

    /// Returns the length of the record in bytes.
    pub const fn length(&self) -> usize {
        HEAD + self.rest.len()
    }

    /// Returns a word of the data after the head.
    pub fn word(&self, at: usize) -> Result<u32, BtfError> {
        word(self.rest, at).ok_or(BtfError::Malformed { at: self.at, what: "a truncated record" })
    }
}

/// Returns the lengths of a kind from the layout section of the BTF.
fn layout_lengths(layout: &[u8], number: u8) -> Option<(usize, usize)> {
    let entry = layout.get(usize::from(number) * 4..)?.first_chunk::<4>()?;
    Some((usize::from(entry[0]), usize::from(entry[1])))
}
