//! A zero-copy reader of BTF, the kernel's type information.
//!
//! The reader adds an index to the raw bytes: one offset per type and one id per name. It accepts untrusted bytes: it
//! checks every offset and bounds every search.
//! Format: <https://docs.kernel.org/bpf/btf.html>.

mod enumeration;
mod error;
mod function;
mod header;
mod member;
mod names;
mod record;
mod source;
mod sparse;
#[cfg(test)]
pub mod tests;

use std::{ffi::CStr, iter};

pub use self::{
    error::BtfError,
    function::{Function, Parameter},
    member::{Extent, Member},
    record::Kind,
    source::{ReadError, VMLINUX, read},
    sparse::{SparseBtf, Target},
};
use self::{names::Names, record::Record};

/// The maximum length of a chain of type references; kernels need fewer than ten.
const MAX_DEPTH: usize = 32;
/// The maximum length of a name, including the terminating zero; the kernel limits symbols to 512 bytes.
const MAX_NAME: usize = 1024;
/// Tracing programs run only on 64-bit kernels.
const POINTER_SIZE: u64 = 8;

/// The id of a type. Zero is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

/// BTF of a kernel, or of one of its modules.
pub struct Btf<'a> {
    base: Option<&'a Btf<'a>>,
    types: &'a [u8],
    strings: &'a [u8],
    layout: &'a [u8],
    /// The offset of each record in `types`.
    records: Vec<u32>,
    names: Names,
}

impl<'a> Btf<'a> {
    /// Reads BTF without a base, for example `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// If the bytes are not BTF in this machine's byte order, or a record is truncated, unknown or has an invalid name.
    pub fn parse(raw: &'a [u8]) -> Result<Self, BtfError> {
        Self::read(raw, None)
    }

    /// Reads the BTF of a module (split BTF). Its type ids and string offsets continue after those of the kernel.
    ///
    /// # Errors
    /// If the bytes are not BTF in this machine's byte order, or a record is truncated, unknown or has an invalid name.
    pub fn parse_module(raw: &'a [u8], kernel: &'a Self) -> Result<Self, BtfError> {
        Self::read(raw, Some(kernel))
    }

    fn read(raw: &'a [u8], base: Option<&'a Self>) -> Result<Self, BtfError> {
        let header::Sections { types, strings, layout } = header::sections(raw)?;
        let mut btf = Self { base, types, strings, layout, records: Vec::new(), names: Names::default() };
        let mut named = 0;
        let mut at = 0;
        while at < types.len() {
            let record = Record::read(types, at, layout)?;
            named += usize::from(record.name != 0);
            let offset = u32::try_from(at).map_err(|_| BtfError::NotBtf("the type section exceeds four gigabytes"))?;
            btf.records.push(offset);
            at += record.length();
        }
        btf.names = Names::of(&btf, named)?;
        Ok(btf)
    }

    /// Returns the first type with this name and kind; a module's type takes precedence over the kernel's.
    #[must_use]
    pub fn find(&self, name: &str, kind: Kind) -> Option<TypeId> {
        self.layers().find_map(|btf| btf.names.find(btf, name, kind))
    }

    /// Returns the number of types, including `void` and the base: the highest id plus one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.first_id() + self.records.len()
    }

    /// Returns the size of a type in bytes.
    ///
    /// # Errors
    /// If the type has no size or is malformed.
    pub fn size(&self, id: TypeId) -> Result<u64, BtfError> {
        let mut elements = 1_u64;
        let mut next = id;
        for _ in 0..MAX_DEPTH {
            let record = self.resolved(next)?;
            let size = match record.kind {
                Some(Kind::Array) => {
                    let too_large = BtfError::Malformed { at: record.at, what: "an array that is too large" };
                    elements = elements.checked_mul(u64::from(record.word(8)?)).ok_or(too_large)?;
                    next = TypeId(record.word(0)?);
                    continue;
                }
                Some(Kind::Pointer) => POINTER_SIZE,
                Some(
                    Kind::Int
                    | Kind::Struct
                    | Kind::Union
                    | Kind::Enum
                    | Kind::Enum64
                    | Kind::Float
                    | Kind::DataSection,
                ) => u64::from(record.size_or_type),
                _ => return Err(BtfError::Unsized { id: next.0 }),
            };
            let too_large = BtfError::Malformed { at: record.at, what: "an array that is too large" };
            return size.checked_mul(elements).ok_or(too_large);
        }
        Err(BtfError::TooDeep { id: id.0 })
    }

    /// Returns the type after typedefs, qualifiers and tags.
    fn resolved(&self, id: TypeId) -> Result<Record<'a>, BtfError> {
        let mut next = id;
        for _ in 0..MAX_DEPTH {
            let record = self.record(next)?;
            if !record.kind.is_some_and(Kind::is_modifier) {
                return Ok(record);
            }
            next = TypeId(record.size_or_type);
        }
        Err(BtfError::TooDeep { id: id.0 })
    }

    fn record(&self, id: TypeId) -> Result<Record<'a>, BtfError> {
        if id.0 == 0 {
            return Err(BtfError::Unsized { id: 0 });
        }
        let number = id.0 as usize;
        let owner = self.layers().find(|btf| number >= btf.first_id()).unwrap_or(self);
        let at = number.checked_sub(owner.first_id()).and_then(|own| owner.records.get(own));
        Record::read(owner.types, *at.ok_or(BtfError::NoSuchId { id: id.0 })? as usize, owner.layout)
    }

    /// Returns the name of a record, without the terminating zero. Empty for an anonymous type.
    fn string(&self, record: &Record<'_>) -> Result<&'a [u8], BtfError> {
        self.string_at(record.name).ok_or(BtfError::Malformed { at: record.at, what: "a name that is out of bounds" })
    }

    fn string_at(&self, offset: u32) -> Option<&'a [u8]> {
        let offset = offset as usize;
        let owner = self.layers().find(|btf| offset >= btf.first_string())?;
        let tail = owner.strings.get(offset - owner.first_string()..)?;
        let bounded = tail.get(..MAX_NAME).unwrap_or(tail);
        CStr::from_bytes_until_nul(bounded).ok().map(CStr::to_bytes)
    }

    /// Returns this BTF, then its base.
    fn layers(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |btf| btf.base)
    }

    fn own_ids(&self) -> impl Iterator<Item = TypeId> + use<'a> {
        let first = self.first_id();
        (first..first + self.records.len()).map(|id| TypeId(u32::try_from(id).unwrap_or(u32::MAX)))
    }

    fn first_id(&self) -> usize {
        self.base.map_or(1, Self::count)
    }

    fn first_string(&self) -> usize {
        self.base.map_or(0, |base| base.first_string() + base.strings.len())
    }
}
