//! The kernel function that turns a program's context into the kernel's own type, put into the object.
//!
//! Such functions are called by the number that the running kernel's types give them. The object has a helper of no kernel
//! in their place, which is never reached where the kernel lacks the function.

use std::ops::Range;

use object::{Object as _, ObjectSection as _, SectionKind};
use undercurrent_ebpf::abi::workload::CAST;

/// Its name, since 6.2.
pub const FUNCTION: &str = "bpf_cast_to_kern_ctx";

/// Bytes of an instruction: opcode, registers, a 16-bit offset and a 32-bit immediate.
const INSTRUCTION: usize = 8;
/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// `BPF_PSEUDO_KFUNC_CALL`, in the place of the source register.
const KERNEL_FUNCTION: u8 = 2 << 4;

/// Puts the function's number wherever an object's programs call it.
///
/// # Errors
/// When the object is no ELF file.
pub fn put(object: &mut [u8], number: u32) -> Result<(), object::Error> {
    for range in code(object)? {
        for instruction in object[range].chunks_exact_mut(INSTRUCTION) {
            if instruction[0] == CALL && instruction[1] == 0 && instruction[4..] == (CAST as u32).to_le_bytes() {
                instruction[1] = KERNEL_FUNCTION;
                instruction[4..].copy_from_slice(&number.to_le_bytes());
            }
        }
    }
    Ok(())
}

/// Where an object has programs.
fn code(object: &[u8]) -> Result<Vec<Range<usize>>, object::Error> {
    let file = object::File::parse(object)?;
    let sections = file.sections().filter(|section| section.kind() == SectionKind::Text);
    let ranges = sections.filter_map(|section| section.file_range());
    let range = |(start, size): (u64, u64)| Some(usize::try_from(start).ok()?..usize::try_from(start + size).ok()?);
    Ok(ranges.filter_map(range).filter(|range| range.end <= object.len()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::object::OBJECT;

    fn calls(object: &[u8], registers: u8, immediate: u32) -> usize {
        let programs = code(object).expect("an object");
        let instructions = programs.into_iter().flat_map(|range| object[range].chunks_exact(INSTRUCTION));
        let wanted = |one: &&[u8]| one[0] == CALL && one[1] == registers && one[4..] == immediate.to_le_bytes();
        instructions.filter(wanted).count()
    }

    #[test]
    fn every_call_in_the_object_gets_the_number() {
        let placeholders = calls(OBJECT, 0, CAST as u32);
        assert!(placeholders > 0, "no program casts its context");
        let mut object = OBJECT.to_vec();
        put(&mut object, 4711).expect("an object");
        assert_eq!(calls(&object, 0, CAST as u32), 0);
        assert_eq!(calls(&object, KERNEL_FUNCTION, 4711), placeholders);
        assert!(put(&mut b"no object".to_vec(), 1).is_err());
    }
}
