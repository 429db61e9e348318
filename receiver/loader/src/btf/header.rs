//! The header of raw BTF and its sections.

use super::BtfError;

pub(super) const MAGIC: u16 = 0xeb9f;
pub(super) const VERSION: u8 = 1;
/// Bytes of the header up to and including `str_len`, in all versions.
pub(super) const HEADER: usize = 24;
/// Bytes of the header with `layout_off` and `layout_len` (7.3 and later).
const HEADER_WITH_LAYOUT: usize = 32;

/// The sections of raw BTF.
pub(super) struct Sections<'a> {
    pub types: &'a [u8],
    pub strings: &'a [u8],
    /// The lengths of records by kind, four bytes each; empty if the BTF has no layout section.
    pub layout: &'a [u8],
}

/// Returns the 32-bit word at an offset. BTF has the byte order of the machine.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

/// Finds the sections and checks that each is within the bytes.
pub(super) fn sections(raw: &[u8]) -> Result<Sections<'_>, BtfError> {
    let magic = raw.first_chunk().map(|magic| u16::from_ne_bytes(*magic));
    match magic {
        Some(MAGIC) => {}
        Some(magic) if magic.swap_bytes() == MAGIC => return Err(BtfError::ForeignByteOrder),
        _ => return Err(BtfError::NotBtf("no magic number at the start")),
    }
    if raw.len() < HEADER {
        return Err(BtfError::NotBtf("truncated header"));
    }
    if raw[2] != VERSION {
        return Err(BtfError::NotBtf("unknown version"));
    }
    let length = word(raw, 4).and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
    if length < HEADER || length > raw.len() {
        return Err(BtfError::NotBtf("invalid header length"));
    }
    let (header, body) = raw.split_at(length);
    let strings = section(header, body, 16).ok_or(BtfError::NotBtf("the string section is out of bounds"))?;
    if strings.last().is_some_and(|byte| *byte != 0) {
        return Err(BtfError::NotBtf("the last string is not terminated"));
    }
    Ok(Sections {
        types: section(header, body, 8).ok_or(BtfError::NotBtf("the type section is out of bounds"))?,
        strings,
        layout: if length < HEADER_WITH_LAYOUT {
            &[]
        } else {
            section(header, body, 24).ok_or(BtfError::NotBtf("the layout section is out of bounds"))?
        },
    })
}

/// Returns a section. `at` is the position of the section's offset and length in the header.
fn section<'a>(header: &[u8], body: &'a [u8], at: usize) -> Option<&'a [u8]> {
    let offset = usize::try_from(word(header, at)?).ok()?;
    let length = usize::try_from(word(header, at + 4)?).ok()?;
    body.get(offset..)?.get(..length)
}
