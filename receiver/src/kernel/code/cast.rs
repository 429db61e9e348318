//! The kernel functions that give a program typed pointers, put into the object.
//!
//! Such functions are called by the number that the running kernel's types give them. The object has a helper of no kernel
//! in their place, which is never reached where the kernel lacks the function.

use undercurrent_ebpf::abi::cast::{CONTEXT, POINTER};

use super::{
    instruction::{CALL, SIZE},
    sections,
};
use crate::kernel::btf::{Btf, Kind};

/// What this kernel has of them; both are there since 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Casts {
    /// The number of `bpf_cast_to_kern_ctx`.
    pub context: Option<u32>,
    /// The number of `bpf_rdonly_cast`.
    pub pointer: Option<u32>,
    /// The number of `struct tcp_sock`, where pointers to it can be had.
    pub tcp_socket: Option<u32>,
}

impl Casts {
    /// What the kernel's types say.
    #[must_use]
    pub fn of(types: &Btf<'_>) -> Self {
        let function = |name| types.function(name).map(|function| function.id.0);
        let (context, pointer) = (function("bpf_cast_to_kern_ctx"), function("bpf_rdonly_cast"));
        let tcp_socket = pointer.and_then(|_| types.find("tcp_sock", Kind::Struct)).map(|id| id.0);
        Self { context, pointer, tcp_socket }
    }

    /// Puts the functions' numbers wherever an object's programs call them.
    ///
    /// # Errors
    /// When the object is no ELF file.
    pub fn put(self, object: &mut [u8]) -> Result<(), object::Error> {
        for (placeholder, number) in [(CONTEXT, self.context), (POINTER, self.pointer)] {
            if let Some(number) = number {
                put(object, placeholder, number)?;
            }
        }
        Ok(())
    }
}

/// `BPF_PSEUDO_KFUNC_CALL`, in the place of the source register.
const KERNEL_FUNCTION: u8 = 2 << 4;

fn put(object: &mut [u8], placeholder: usize, number: u32) -> Result<(), object::Error> {
    for range in sections(object)? {
        for instruction in object[range].chunks_exact_mut(SIZE) {
            if instruction[0] == CALL && instruction[1] == 0 && instruction[4..] == (placeholder as u32).to_le_bytes() {
                instruction[1] = KERNEL_FUNCTION;
                instruction[4..].copy_from_slice(&number.to_le_bytes());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::object::OBJECT;

    fn calls(object: &[u8], registers: u8, immediate: u32) -> usize {
        let programs = sections(object).expect("an object");
        let instructions = programs.into_iter().flat_map(|range| object[range].chunks_exact(SIZE));
        let wanted = |one: &&[u8]| one[0] == CALL && one[1] == registers && one[4..] == immediate.to_le_bytes();
        instructions.filter(wanted).count()
    }

    #[test]
    fn every_call_in_the_object_gets_the_number() {
        for placeholder in [CONTEXT, POINTER] {
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
