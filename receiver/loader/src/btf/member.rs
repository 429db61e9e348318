//! Lookup of struct members and their offsets.

use super::{
    Btf, BtfError, Kind, MAX_DEPTH, TypeId,
    header::word,
    record::{ENUMERATOR, MEMBER, Record},
};

/// The maximum number of members that a search visits. The kernel's largest structs have a few hundred, including
/// members of anonymous structs.
const MAX_MEMBERS: usize = 1 << 16;

/// The offset and size of a member, relative to the outermost struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Whole bytes.
    Bytes {
        /// Offset in bytes; less than 2^31.
        offset: u32,
        /// Size in bytes.
        size: u64,
    },
    /// A bit-field.
    Bits {
        /// Offset in bits. Big-endian machines count from the highest bit of each byte.
        offset: u64,
        /// Width in bits.
        width: u32,
    },
}

/// A member found by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The type of the member.
    pub id: TypeId,
    /// The offset and size.
    pub extent: Extent,
    /// True for a struct, a union or an array.
    pub aggregate: bool,
}

/// An intermediate result of a path lookup.
#[derive(Clone, Copy)]
struct Step {
    id: TypeId,
    /// Offset in bits, relative to the outermost struct.
    bits: u64,
    /// Width in bits if the member's record declares a bit-field; otherwise zero.
    width: u32,
}

impl Btf<'_> {
    /// Finds a member by the name of a struct, union or typedef and a path of member names joined by dots.
    ///
    /// The search includes anonymous structs and unions. A number, or the name of any enumerator, is the index of an
    /// array element.
    ///
    /// # Errors
    /// If the type or a part of the path does not exist, or a visited record is malformed.
    pub fn member(&self, type_name: &str, path: &str) -> Result<Member, BtfError> {
        let outermost = [Kind::Struct, Kind::Union, Kind::Typedef]
            .into_iter()
            .find_map(|kind| self.find(type_name, kind))
            .ok_or_else(|| BtfError::NoSuchType { kind: Kind::Struct, name: type_name.to_owned() })?;
        let mut step = Step { id: outermost, bits: 0, width: 0 };
        let mut left = MAX_MEMBERS;
        for part in path.split('.') {
            let record = self.resolved(step.id)?;
            let compound = step.width == 0 && record.kind.is_some_and(Kind::has_members);
            let inner = match record.kind {
                _ if compound => self.search(&record, part, MAX_DEPTH, &mut left)?,
                Some(Kind::Array) => self.element(&record, part)?,
                _ => None,
            };
            let Some(inner) = inner else {
                let (type_name, path, member) = (type_name.to_owned(), path.to_owned(), part.to_owned());
                return Err(if compound {
                    BtfError::NoSuchMember { type_name, path, member }
                } else {
                    BtfError::NotAStruct { type_name, path, member }
                });
            };
            step = Step { bits: step.bits.saturating_add(inner.bits), ..inner };
        }
        self.extent(step)
    }

    /// Returns the element of an array; `None` if the part is no index, or the index is out of bounds.
    fn element(&self, array: &Record<'_>, part: &str) -> Result<Option<Step>, BtfError> {
        let (id, count) = (TypeId(array.word(0)?), array.word(8)?);
        let number = part.parse().ok().or_else(|| self.enumerator(part));
        let Some(index) = number.filter(|index| *index < count) else { return Ok(None) };
        let bits = self.size(id)?.saturating_mul(8).saturating_mul(u64::from(index));
        Ok(Some(Step { id, bits, width: 0 }))
    }

    /// Returns the number of an enumerator. C has one namespace for the enumerators of all enumerations.
    fn enumerator(&self, name: &str) -> Option<u32> {
        let records = (0..self.count()).filter_map(|id| self.record(TypeId(u32::try_from(id).ok()?)).ok());
        let enumerations = records.filter(|record| record.kind == Some(Kind::Enum));
        let mut enumerators = enumerations.flat_map(|record| record.rest.chunks_exact(ENUMERATOR));
        enumerators.find_map(|one| (self.string_at(word(one, 0)?)? == name.as_bytes()).then(|| word(one, 4))?)
    }

    /// Finds a member by name: first among the named members, then inside the anonymous ones.
    fn search(&self, outer: &Record<'_>, name: &str, depth: usize, left: &mut usize) -> Result<Option<Step>, BtfError> {
        let too_deep = BtfError::Malformed { at: outer.at, what: "a struct that is nested too deeply" };
        *left = left.checked_sub(outer.rest.len() / MEMBER).ok_or(too_deep.clone())?;
        let depth = depth.checked_sub(1).ok_or(too_deep)?;
        for (own, step) in members(outer) {
            if own != 0 && self.string_at(own) == Some(name.as_bytes()) {
                return Ok(Some(step));
            }
        }
        for (own, step) in members(outer) {
            if own != 0 {
                continue;
            }
            let inner = self.resolved(step.id)?;
            if !inner.kind.is_some_and(Kind::has_members) {
                continue;
            }
            if let Some(found) = self.search(&inner, name, depth, left)? {
                return Ok(Some(Step { bits: step.bits + found.bits, ..found }));
            }
        }
        Ok(None)
    }

    fn extent(&self, step: Step) -> Result<Member, BtfError> {
        let record = self.resolved(step.id)?;
        let malformed = |what| BtfError::Malformed { at: record.at, what };
        let kind = record.kind.ok_or(malformed("a member of an unknown kind"))?;
        let aggregate = kind.has_members() || kind == Kind::Array;
        let extent = match (step.width, narrow_int(&record)?) {
            (0, Some((shift, width))) => Extent::Bits { offset: step.bits.saturating_add(u64::from(shift)), width },
            (0, None) => {
                if !step.bits.is_multiple_of(8) {
                    return Err(malformed("a member that is not aligned to a byte"));
                }
                let offset = i32::try_from(step.bits / 8).map_err(|_| malformed("a member with a too large offset"))?;
                Extent::Bytes { offset: offset.unsigned_abs(), size: self.size(step.id)? }
            }
            (width, _) => Extent::Bits { offset: step.bits, width },
        };
        Ok(Member { id: step.id, extent, aggregate })
    }
}

/// Returns the members of a struct or union: the offset of the name, and the step with offset and width.
fn members<'r>(outer: &Record<'r>) -> impl Iterator<Item = (u32, Step)> + use<'r> {
    let flag = outer.flag;
    outer.rest.chunks_exact(MEMBER).filter_map(move |member| {
        let offset = word(member, 8)?;
        let (bits, width) = if flag { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
        Some((word(member, 0)?, Step { id: TypeId(word(member, 4)?), bits: u64::from(bits), width }))
    })
}

/// Returns the offset and width, in bits, of an int that is narrower than its bytes. Compilers before 2018 encoded
/// bit-fields this way.
fn narrow_int(record: &Record<'_>) -> Result<Option<(u32, u32)>, BtfError> {
    if record.kind != Some(Kind::Int) {
        return Ok(None);
    }
    let encoding = record.word(0)?;
    let (shift, width) = (encoding >> 16 & 0xff, encoding & 0xff);
    let whole = shift == 0 && u64::from(width) == u64::from(record.size_or_type) * 8;
    Ok(if whole { None } else { Some((shift, width)) })
}
