//! The kernel functions (kfuncs) that give a program typed pointers.
//!
//! A program calls a kernel function by its BTF type id, which differs between kernels. The object contains calls of a
//! missing helper as placeholders ([`undercurrent_ebpf::abi::cast`]). On kernels without the function, the verifier
//! never reaches these calls.

use std::ops::Range;

use object::{Object as _, ObjectSection as _, SectionKind};
use undercurrent_ebpf::abi::cast::{CONTEXT, PACKET, POINTER};

use super::btf::{Btf, Kind};

/// BTF type ids for pointer casts and access to packets. The kernel has both casts since 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Casts {
    /// Id of `bpf_cast_to_kern_ctx`.
    pub context: Option<u32>,
    /// Id of `bpf_rdonly_cast`.
    pub pointer: Option<u32>,
    /// Id of `struct tcp_sock`, on kernels with `bpf_rdonly_cast`.
    pub tcp_socket: Option<u32>,
    /// Id of `bpf_dynptr_from_skb`, on kernels where programs of tracepoints can call it.
    pub packet: Option<u32>,
}

/// A function of Linux 6.12. Programs of tracepoints can call `bpf_dynptr_from_skb` since 6.11, which no type shows.
const SINCE_6_12: &str = "bpf_copy_from_user_str";

impl Casts {
    /// Returns the ids that the running kernel's BTF declares.
    #[must_use]
    pub fn of(types: &Btf<'_>) -> Self {
        let function = |name| types.function(name).map(|function| function.id.0);
        let (context, pointer) = (function("bpf_cast_to_kern_ctx"), function("bpf_rdonly_cast"));
        let tcp_socket = pointer.and_then(|_| types.find("tcp_sock", Kind::Struct)).map(|id| id.0);
        let packet = function(SINCE_6_12).and_then(|_| function("bpf_dynptr_from_skb"));
        Self { context, pointer, tcp_socket, packet }
    }

    /// Replaces the placeholder calls in an object with calls of the kernel functions.
    ///
    /// # Errors
    /// If the object is not an ELF file.
    pub fn put(self, object: &mut [u8]) -> Result<(), object::Error> {
        for (placeholder, id) in [(CONTEXT, self.context), (POINTER, self.pointer), (PACKET, self.packet)] {
            if let Some(id) = id {
                put(object, placeholder, id)?;
            }
        }
        Ok(())
    }
}

/// Bytes of an instruction (`struct bpf_insn`).
const SIZE: usize = 8;
/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// `BPF_PSEUDO_KFUNC_CALL`, in the bits of the source register.
const KERNEL_FUNCTION: u8 = 2 << 4;

fn put(object: &mut [u8], placeholder: usize, id: u32) -> Result<(), object::Error> {
    for range in sections(object)? {
        for instruction in object[range].chunks_exact_mut(SIZE) {
            if instruction[0] == CALL && instruction[1] == 0 && instruction[4..] == (placeholder as u32).to_le_bytes() {
                instruction[1] = KERNEL_FUNCTION;
                instruction[4..].copy_from_slice(&id.to_le_bytes());
            }
        }
    }
    Ok(())
}

/// Returns the byte ranges of the sections that contain programs.
fn sections(object: &[u8]) -> Result<Vec<Range<usize>>, object::Error> {
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
        let programs = sections(object).expect("an object");
        let instructions = programs.into_iter().flat_map(|range| object[range].chunks_exact(SIZE));
        let is_call = |one: &&[u8]| one[0] == CALL && one[1] == registers && one[4..] == immediate.to_le_bytes();
        instructions.filter(is_call).count()
    }

    #[test]
    fn every_placeholder_call_becomes_a_call_of_the_kernel_function() {
        for placeholder in [CONTEXT, POINTER, PACKET] {
            let placeholders = calls(OBJECT, 0, placeholder as u32);
            assert!(placeholders > 0, "no program calls {placeholder:x}");
            let mut object = OBJECT.to_vec();
            put(&mut object, placeholder, 4711).expect("an object");
            assert_eq!(calls(&object, 0, placeholder as u32), 0);
            assert_eq!(calls(&object, KERNEL_FUNCTION, 4711), placeholders);
        }
        assert!(put(&mut b"no object".to_vec(), CONTEXT, 1).is_err());
    }
}
