//! The instructions of an eBPF object before it is parsed.

use object::{Object as _, ObjectSection as _, SectionKind};

/// Bytes of an instruction (`struct bpf_insn`): the opcode, the destination and source register, a 16-bit offset and a 32-bit
/// operand.
pub const SIZE: usize = 8;

/// An instruction.
pub type Instruction = [u8; SIZE];

/// Calls `visit` with the instructions of each section that contains programs.
///
/// # Errors
/// If the object is not an ELF file, or `visit` fails.
pub fn for_each<E: From<object::Error>>(
    object: &mut [u8],
    mut visit: impl FnMut(&mut [Instruction]) -> Result<(), E>,
) -> Result<(), E> {
    let file = object::File::parse(&*object)?;
    let sections = file.sections().filter(|section| section.kind() == SectionKind::Text);
    let ranges: Vec<_> = sections.filter_map(|section| section.file_range()).collect();
    for (start, size) in ranges {
        let range = usize::try_from(start).ok().zip(usize::try_from(start.saturating_add(size)).ok());
        if let Some(section) = range.and_then(|(start, end)| object.get_mut(start..end)) {
            visit(section.as_chunks_mut().0)?;
        }
    }
    Ok(())
}
