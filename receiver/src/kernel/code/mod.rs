//! The object's programs, made what this kernel's are to be before they are loaded.

mod cast;
mod flow;
mod fold;
mod instruction;
mod shorten;

use std::{collections::HashMap, ops::Range};

use object::{Object as _, ObjectSection as _, SectionKind};

pub use self::cast::Casts;

/// Gives programs what this kernel has of casts and the values of 32-bit globals that never change, by their symbols, and
/// takes out what does nothing then.
///
/// # Errors
/// When the object is no ELF file of little-endian 64-bit words.
pub fn settle(object: &mut [u8], casts: Casts, values: &HashMap<&str, u32>) -> Result<(), object::Error> {
    casts.put(object)?;
    fold::constants(object, values).map(drop)
}

/// Where an object has programs.
fn sections(object: &[u8]) -> Result<Vec<Range<usize>>, object::Error> {
    let file = object::File::parse(object)?;
    let sections = file.sections().filter(|section| section.kind() == SectionKind::Text);
    let ranges = sections.filter_map(|section| section.file_range());
    let range = |(start, size): (u64, u64)| Some(usize::try_from(start).ok()?..usize::try_from(start + size).ok()?);
    Ok(ranges.filter_map(range).filter(|range| range.end <= object.len()).collect())
}

#[cfg(test)]
mod tests;
