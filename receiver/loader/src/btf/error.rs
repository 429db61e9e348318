//! Errors of malformed BTF and of failed lookups.

use super::Kind;

/// The error of reading BTF or of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The bytes are not BTF.
    #[error("not BTF: {0}")]
    NotBtf(&'static str),
    /// The BTF has the byte order of a different machine.
    #[error("the byte order of the BTF differs from this machine")]
    ForeignByteOrder,
    /// The header is valid, but a record is malformed.
    #[error("malformed BTF: {what} at byte {at} of the types")]
    Malformed {
        /// Offset of the record in the type section.
        at: usize,
        /// The defect.
        what: &'static str,
    },
    /// A record of an unknown kind, without a length in the BTF's layout section.
    #[error("BTF record of unknown kind {kind} at byte {at} of the types")]
    UnknownKind {
        /// Offset of the record in the type section.
        at: usize,
        /// Number of the kind.
        kind: u8,
    },
    /// A reference to a type that does not exist.
    #[error("BTF refers to the missing type {id}")]
    NoSuchId {
        /// The type's number.
        id: u32,
    },
    /// References between types form a cycle, or a chain that is too long.
    #[error("BTF type {id} is nested too deeply")]
    TooDeep {
        /// The first type of the search.
        id: u32,
    },
    /// No type of this kind has this name.
    #[error("no {kind} named {name}")]
    NoSuchType {
        /// The kind of type.
        kind: Kind,
        /// The name of the type.
        name: String,
    },
    /// A struct and its anonymous members have no member of this name.
    #[error("{type_name}.{path}: no member {member}")]
    NoSuchMember {
        /// The outermost struct.
        type_name: String,
        /// The complete path.
        path: String,
        /// The missing part of the path.
        member: String,
    },
    /// The path continues into a type without members or elements.
    #[error("{type_name}.{path}: {member} is not in a struct, union or array")]
    NotAStruct {
        /// The outermost struct.
        type_name: String,
        /// The complete path.
        path: String,
        /// The part of the path that cannot be resolved.
        member: String,
    },
    /// The type has no size: `void`, functions, and forward-declared structs.
    #[error("BTF type {id} has no size")]
    Unsized {
        /// The type's number.
        id: u32,
    },
}
