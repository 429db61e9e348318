//! The header of raw BTF and the sections it points to.

use super::BtfError;

pub(super) const MAGIC: u16 = 0xeb9f;
pub(super) const VERSION: u8 = 1;
/// Bytes of the header up to and with `str_len`, which every version has.
pub(super) const HEADER: usize = 24;
/// Bytes of the header with `layout_off` and `layout_len` (7.3 and later).
const HEADER_WITH_LAYOUT: usize = 32;

/// The sections of raw BTF.
pub(super) struct Sections<'a> {
    pub types: &'a [u8],
    pub strings: &'a [u8],
    /// How long the records of each kind are, four bytes a kind; empty where the BTF does not tell.
    pub layout: &'a [u8],
}

/// The 32 bits at an offset, in the machine's own byte order, as all of BTF is.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

/// Finds the sections, each checked to lie within the bytes.
pub(super) fn sections(raw: &[u8]) -> Result<Sections<'_>, BtfError> {
    let magic = raw.first_chunk().map(|magic| u16::from_ne_bytes(*magic));
    match magic {
        Some(MAGIC) => {}
        Some(magic) if magic.swap_bytes() == MAGIC => return Err(BtfError::ForeignByteOrder),
        _ => return Err(BtfError::NotBtf("it does not begin with BTF's magic number")),
    }
    if raw.len() < HEADER {
        return Err(BtfError::NotBtf("it ends inside its header"));
    }
    if raw[2] != VERSION {
        return Err(BtfError::NotBtf("it is of an unknown version"));
    }
    let length = word(raw, 4).and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
    if length < HEADER || length > raw.len() {
        return Err(BtfError::NotBtf("its header has an impossible length"));
    }
    let (header, body) = raw.split_at(length);
    let strings = section(header, body, 16).ok_or(BtfError::NotBtf("its strings lie outside of it"))?;
    if strings.last().is_some_and(|byte| *byte != 0) {
        return Err(BtfError::NotBtf("its last string has no end"));
    }
    Ok(Sections {
        types: section(header, body, 8).ok_or(BtfError::NotBtf("its types lie outside of it"))?,
        strings,
        layout: if length < HEADER_WITH_LAYOUT {
            &[]
        } else {
            section(header, body, 24).ok_or(BtfError::NotBtf("its layout lies outside of it"))?
        },
    })
}

/// The section whose offset and length stand at a place of the header.
fn section<'a>(header: &[u8], body: &'a [u8], at: usize) -> Option<&'a [u8]> {
    let offset = usize::try_from(word(header, at)?).ok()?;
    let length = usize::try_from(word(header, at + 4)?).ok()?;
    body.get(offset..)?.get(..length)
}
