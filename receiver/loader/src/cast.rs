//! The kernel functions (kfuncs) that give a program typed pointers.
//!
//! A program calls a kernel function by its BTF type id, which differs between kernels. The object contains calls of a
//! missing helper as placeholders ([`undercurrent_ebpf::abi::cast`]). On kernels without the function, the verifier
//! never reaches these calls.

mod accepted;

use undercurrent_ebpf::abi::cast::{CONTEXT, PACKET, POINTER};

use super::{
    btf::{Btf, Kind},
    instructions,
};

/// BTF type ids for pointer casts and access to packets. The kernel has both casts since 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Casts {
    /// Id of `bpf_cast_to_kern_ctx`.
    pub context: Option<u32>,
    /// Id of `bpf_rdonly_cast`.
    pub pointer: Option<u32>,
    /// Id of `struct tcp_sock`, on kernels with `bpf_rdonly_cast`.
    pub tcp_socket: Option<u32>,
    /// Ids of `struct sk_buff` and `struct tcp_skb_cb`, on kernels with `bpf_rdonly_cast`.
    pub tcp_segment: Option<(u32, u32)>,
    /// Id of `bpf_dynptr_from_skb`, on kernels where programs of tracepoints can call it.
    pub packet: Option<u32>,
}

/// The tracepoint with a packet whose program calls `bpf_dynptr_from_skb`.
const COPIED: &str = "skb_copy_datagram_iovec";

impl Casts {
    /// Returns the ids that the running kernel's BTF declares. Loads a program to see which calls the verifier accepts.
    #[must_use]
    pub fn of(types: &Btf<'_>) -> Self {
        let function = |name| types.function(name).map(|function| function.id.0);
        let (context, pointer) = (function("bpf_cast_to_kern_ctx"), function("bpf_rdonly_cast"));
        let of_struct = |name| pointer.and_then(|_| types.find(name, Kind::Struct)).map(|id| id.0);
        let tcp_socket = of_struct("tcp_sock");
        let tcp_segment = of_struct("sk_buff").zip(of_struct("tcp_skb_cb"));
        // Programs of tracepoints can call it since 6.12.
        let packet = function("bpf_dynptr_from_skb").filter(|function| {
            types.tracepoint(COPIED).is_some_and(|tracepoint| accepted::at_tracepoint(tracepoint.id.0, *function))
        });
        Self { context, pointer, tcp_socket, tcp_segment, packet }
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

/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// `BPF_PSEUDO_KFUNC_CALL`, in the bits of the source register.
const KERNEL_FUNCTION: u8 = 2 << 4;

fn put(object: &mut [u8], placeholder: usize, id: u32) -> Result<(), object::Error> {
    instructions::for_each(object, |instructions| {
        for instruction in instructions {
            if instruction[0] == CALL && instruction[1] == 0 && instruction[4..] == (placeholder as u32).to_le_bytes() {
                instruction[1] = KERNEL_FUNCTION;
                instruction[4..].copy_from_slice(&id.to_le_bytes());
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{instructions::Instruction, object::OBJECT};

    fn calls(object: &mut [u8], registers: u8, immediate: u32) -> usize {
        let is_call =
            |one: &&mut Instruction| one[0] == CALL && one[1] == registers && one[4..] == immediate.to_le_bytes();
        let mut found = 0;
        instructions::for_each(object, |instructions| {
            found += instructions.iter_mut().filter(is_call).count();
            Ok::<_, object::Error>(())
        })
        .expect("an object");
        found
    }

    #[test]
    fn every_placeholder_call_becomes_a_call_of_the_kernel_function() {
        for placeholder in [CONTEXT, POINTER, PACKET] {
            let mut object = OBJECT.to_vec();
            let placeholders = calls(&mut object, 0, placeholder as u32);
            assert!(placeholders > 0, "no program calls {placeholder:x}");
            put(&mut object, placeholder, 4711).expect("an object");
            assert_eq!(calls(&mut object, 0, placeholder as u32), 0);
            assert_eq!(calls(&mut object, KERNEL_FUNCTION, 4711), placeholders);
        }
        assert!(put(&mut b"no object".to_vec(), CONTEXT, 1).is_err());
    }
}
