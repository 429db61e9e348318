//! What can be wrong with type information, or with what is asked of it.

use super::Kind;

/// Why the type information does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The bytes are no BTF.
    #[error("no BTF: {0}")]
    NotBtf(&'static str),
    /// The bytes were written on a machine of the other byte order.
    #[error("BTF of the other byte order than this machine's")]
    ForeignByteOrder,
    /// The header is sound, but something behind it is not.
    #[error("malformed BTF: {what} at byte {at} of the types")]
    Malformed {
        /// Offset of the record in the type section.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A record of a kind that this reader does not know and whose length the BTF does not tell.
    #[error("BTF record of the unknown kind {kind} at byte {at} of the types")]
    UnknownKind {
        /// Offset of the record in the type section.
        at: usize,
        /// Number of the kind.
        kind: u8,
    },
    /// A reference to a type that does not exist.
    #[error("BTF refers to type {id}, which it does not have")]
    NoSuchId {
        /// The type's number.
        id: u32,
    },
    /// Types refer to each other without an end.
    #[error("BTF type {id} is nested too deeply")]
    TooDeep {
        /// Where the search began.
        id: u32,
    },
    /// No type has that name.
    #[error("no {kind} named {name}")]
    NoSuchType {
        /// What was looked for.
        kind: Kind,
        /// By which name.
        name: String,
    },
    /// A struct has no member of that name, its anonymous members included.
    #[error("{type_name}.{path}: no member {member}")]
    NoSuchMember {
        /// The outermost struct.
        type_name: String,
        /// The whole path looked for.
        path: String,
        /// The part of it that is missing.
        member: String,
    },
    /// The path goes on where there is nothing to go into.
    #[error("{type_name}.{path}: {member} is not in a struct, union or array")]
    NotAStruct {
        /// The outermost struct.
        type_name: String,
        /// The whole path looked for.
        path: String,
        /// The part of it that has no place.
        member: String,
    },
    /// Types without a size: `void`, functions, declared but undefined structs.
    #[error("BTF type {id} has no size")]
    Unsized {
        /// The type's number.
        id: u32,
    },
}
