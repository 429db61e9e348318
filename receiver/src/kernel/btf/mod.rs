//! The kernel's type information (BTF), read in place.
//!
//! Records stay where they are in the raw bytes; beside them there is one offset a type and one number a name. The
//! reader takes any bytes whatever: every offset is checked, and every search is bounded.
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
pub(crate) mod tests;

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

/// Types refer to types; kernels need less than ten steps.
const MAX_DEPTH: usize = 32;
/// Longest name with its closing zero; the kernel's own symbols end at 512 bytes.
const MAX_NAME: usize = 1024;
/// Tracing programs run on 64-bit kernels alone.
const POINTER_SIZE: u64 = 8;

/// A type's number. Zero is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

/// BTF of a kernel, or of one of its modules.
pub struct Btf<'a> {
    base: Option<&'a Btf<'a>>,
    types: &'a [u8],
    strings: &'a [u8],
    layout: &'a [u8],
    /// Where each record begins in `types`.
    records: Vec<u32>,
    names: Names,
}

impl<'a> Btf<'a> {
    /// Reads BTF that stands by itself, such as `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// When the bytes are no BTF of this machine's byte order, or a record is cut off, unknown or named by nothing.
    pub fn parse(raw: &'a [u8]) -> Result<Self, BtfError> {
        Self::read(raw, None)
    }

    /// Reads the BTF of a module, whose types and strings go on where the kernel's end.
    ///
    /// # Errors
    /// As for [`Self::parse`].
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
            let offset = u32::try_from(at).map_err(|_| BtfError::NotBtf("it has over four gigabytes of types"))?;
            btf.records.push(offset);
            at += record.length();
        }
        btf.names = Names::of(&btf, named)?;
        Ok(btf)
    }

    /// The first type of that name and kind: a module's own before the kernel's.
    #[must_use]
    pub fn find(&self, name: &str, kind: Kind) -> Option<TypeId> {
        self.layers().find_map(|btf| btf.names.find(btf, name, kind))
    }

    /// How many types there are, `void` and the base's included: one more than the highest number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.first_id() + self.records.len()
    }

    /// Bytes of a value of that type.
    ///
    /// # Errors
    /// For types that have no size, and for malformed ones.
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

    /// The type behind typedefs, qualifiers and tags.
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

    /// The name of a record, without its closing zero. Empty for the nameless.
    fn string(&self, record: &Record<'_>) -> Result<&'a [u8], BtfError> {
        self.string_at(record.name).ok_or(BtfError::Malformed { at: record.at, what: "a name outside of the strings" })
    }

    fn string_at(&self, offset: u32) -> Option<&'a [u8]> {
        let offset = offset as usize;
        let owner = self.layers().find(|btf| offset >= btf.first_string())?;
        let tail = owner.strings.get(offset - owner.first_string()..)?;
        let bounded = tail.get(..MAX_NAME).unwrap_or(tail);
        CStr::from_bytes_until_nul(bounded).ok().map(CStr::to_bytes)
    }

    /// This BTF, then the one that it goes on from.
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
