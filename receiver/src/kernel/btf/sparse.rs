//! The kernel's BTF with little left but its numbering.
//!
//! To load a program that attaches to a function or tracepoint, aya looks up one number by name and kind in a BTF that
//! it has taken apart type by type. What else the BTF says is never asked for, so it is left out.

use aya::{Btf as AyaBtf, Endianness};

use super::{
    Btf, Kind, TypeId,
    function::tracepoint_type,
    header::{HEADER, MAGIC, VERSION},
    record::HEAD,
};

/// What a program attaches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target<'a> {
    /// A function of the kernel, by fentry, fexit or an iterator.
    Function(&'a str),
    /// A tracepoint, by `tp_btf`.
    Tracepoint(&'a str),
}

impl Target<'_> {
    /// The name and kind by which aya looks for it.
    fn type_name(self) -> (String, Kind) {
        match self {
            Self::Function(name) => (name.to_owned(), Kind::Function),
            Self::Tracepoint(name) => (tracepoint_type(name), Kind::Typedef),
        }
    }
}

/// Raw BTF in which the targets have the numbers, names and kinds that they have in the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseBtf(Vec<u8>);

impl SparseBtf {
    /// The raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What aya makes of it: some 80 bytes for each type up to the highest number of a target.
    ///
    /// # Errors
    /// None in practice: the bytes are well-formed.
    pub fn into_aya(self) -> Result<AyaBtf, aya::BtfError> {
        AyaBtf::parse(&self.0, Endianness::default())
    }
}

impl Btf<'_> {
    /// Reduces to what it takes to attach to the targets. Those that do not exist are left out.
    ///
    /// The kernel's raw BTF and this reader can be freed before aya gets the result.
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

        // The record after the last target's is what all of them refer to.
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

/// Appends prototypes without parameters, the smallest record that a function may refer to, until a number is next.
fn fill(raw: &mut Vec<u8>, next: u32) {
    while (raw.len() - HEADER) / HEAD + 1 < next as usize {
        append(raw, [0, (Kind::Prototype as u32) << 24, 0]);
    }
}

/// Appends words of a record.
pub(super) fn append<const N: usize>(raw: &mut Vec<u8>, words: [u32; N]) {
    raw.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
}

/// Turns records behind room for a header into raw BTF.
pub(super) fn close(raw: &mut Vec<u8>, strings: &[u8]) {
    let types = (raw.len() - HEADER) as u32;
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC.to_ne_bytes());
    header.extend([VERSION, 0]);
    append(&mut header, [HEADER as u32, 0, types, types, strings.len() as u32]);
    raw[..HEADER].copy_from_slice(&header);
    raw.extend(strings);
}
