//! A reduced BTF that keeps only the type ids of attachment targets.
//!
//! To load a program that attaches to a function or tracepoint, aya looks up one type id by name and kind. aya parses
//! every type of the BTF for that lookup, so the reduced BTF omits all other types.

use aya::{Btf as AyaBtf, Endianness};

use super::{
    Btf, Kind, TypeId,
    function::tracepoint_type,
    header::{HEADER, MAGIC, VERSION},
    record::HEAD,
};

/// The attachment target of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target<'a> {
    /// A function of the kernel, by fentry, fexit or an iterator.
    Function(&'a str),
    /// A tracepoint, by `tp_btf`.
    Tracepoint(&'a str),
}

impl Target<'_> {
    /// Returns the name and kind that aya looks up.
    fn type_name(self) -> (String, Kind) {
        match self {
            Self::Function(name) => (name.to_owned(), Kind::Function),
            Self::Tracepoint(name) => (tracepoint_type(name), Kind::Typedef),
        }
    }
}

/// Raw BTF in which the targets keep the ids, names and kinds of the kernel's BTF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseBtf(Vec<u8>);

impl SparseBtf {
    /// Returns the raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Parses the BTF with aya, which takes about 80 bytes for each type up to the highest id of a target.
    ///
    /// # Errors
    /// If aya rejects the BTF, which would be a bug of the reduction.
    pub fn into_aya(self) -> Result<AyaBtf, aya::BtfError> {
        AyaBtf::parse(&self.0, Endianness::default())
    }
}

impl Btf<'_> {
    /// Reduces the BTF to the given targets and skips missing ones.
    ///
    /// The result borrows nothing, so the kernel's raw BTF can be freed before aya parses the result.
    #[must_use]
    pub fn sparse(&self, targets: &[Target<'_>]) -> SparseBtf {
        let mut kept: Vec<(TypeId, String, Kind)> = targets
            .iter()
            .filter_map(|target| {
                let (name, kind) = target.type_name();
                Some((self.find(&name, kind)?, name, kind))
            })
            .collect();
        kept.sort_unstable_by_key(|(id, ..)| *id);
        kept.dedup_by_key(|(id, ..)| *id);

        // All targets refer to the record after the last target.
        let filler = kept.last().map_or(1, |(id, ..)| id.0.saturating_add(1));
        let names: usize = kept.iter().map(|(_, name, _)| name.len() + 1).sum();
        let mut raw = Vec::with_capacity(HEADER + filler as usize * HEAD + 1 + names);
        raw.resize(HEADER, 0);
        let mut strings = vec![0];
        for (id, name, kind) in kept {
            fill(&mut raw, id.0);
            append(&mut raw, [strings.len() as u32, (kind as u32) << 24, filler]);
            strings.extend(name.into_bytes());
            strings.push(0);
        }
        fill(&mut raw, filler + 1);
        close(&mut raw, &strings);
        SparseBtf(raw)
    }
}

/// Appends filler records until `next` is the next id. The filler is a prototype without parameters, the smallest
/// record that a function may refer to.
fn fill(raw: &mut Vec<u8>, next: u32) {
    while (raw.len() - HEADER) / HEAD + 1 < next as usize {
        append(raw, [0, (Kind::Prototype as u32) << 24, 0]);
    }
}

/// Appends the words of a record.
pub(super) fn append<const N: usize>(raw: &mut Vec<u8>, words: [u32; N]) {
    raw.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
}

/// Completes raw BTF: writes the header into the reserved space before the records and appends the strings.
pub(super) fn close(raw: &mut Vec<u8>, strings: &[u8]) {
    let types = (raw.len() - HEADER) as u32;
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC.to_ne_bytes());
    header.extend([VERSION, 0]);
    append(&mut header, [HEADER as u32, 0, types, types, strings.len() as u32]);
    raw[..HEADER].copy_from_slice(&header);
    raw.extend(strings);
}
