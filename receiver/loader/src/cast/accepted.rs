//! Asks the verifier whether it accepts a call of a kernel function: no type shows which programs may call it.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use aya_obj::generated::{bpf_attach_type, bpf_attr, bpf_cmd, bpf_prog_type};

use super::{CALL, KERNEL_FUNCTION};
use crate::instructions::Instruction;

/// The operations of the program, by `include/uapi/linux/bpf.h`.
const LOAD: u8 = 0x79;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const EXIT: u8 = 0x95;
/// The register of the stack.
const STACK: u8 = 10;
/// Bytes of `struct bpf_dynptr`.
const POINTER: i32 = 16;

/// Returns true if a program at the tracepoint may call a function of the type of `bpf_dynptr_from_skb`. The first argument of the
/// tracepoint is a packet. The program is loaded and never attached.
pub fn at_tracepoint(tracepoint: u32, function: u32) -> bool {
    // dynptr_from_skb(arguments[0], 0, stack), return 0
    let program = [
        instruction(LOAD, 1, 1, 0),
        instruction(MOVE_CONSTANT, 2, 0, 0),
        instruction(MOVE, 3, STACK, 0),
        instruction(ADD_CONSTANT, 3, 0, -POINTER),
        instruction(CALL, 0, KERNEL_FUNCTION >> 4, function.cast_signed()),
        instruction(MOVE_CONSTANT, 0, 0, 0),
        instruction(EXIT, 0, 0, 0),
    ];
    // SAFETY: the type contains only integers, for which zero bytes are valid.
    let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: as above; all members of the union are integers.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_TRACING as u32;
    load.expected_attach_type = bpf_attach_type::BPF_TRACE_RAW_TP as u32;
    load.attach_btf_id = tracepoint;
    load.insns = program.as_ptr() as u64;
    load.insn_cnt = program.len() as u32;
    load.license = c"GPL".as_ptr() as u64;
    // SAFETY: the attributes, the instructions and the license outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, bpf_cmd::BPF_PROG_LOAD, &raw const attributes, size_of_val(&attributes))
    };
    if result < 0 {
        return false;
    }
    // SAFETY: the call returned a new descriptor. Closing it unloads the program.
    drop(unsafe { OwnedFd::from_raw_fd(result as RawFd) });
    true
}

/// Returns `struct bpf_insn`, with an offset of zero.
fn instruction(code: u8, destination: u8, source: u8, immediate: i32) -> Instruction {
    let [a, b, c, d] = immediate.to_le_bytes();
    [code, destination | source << 4, 0, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{Btf, tests::running_kernel};

    #[test]
    fn the_verifier_knows_the_functions_of_tracepoints() {
        // SAFETY: the call has no arguments.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skipped: only root loads programs");
        }
        let Some(raw) = running_kernel() else { return };
        let types = Btf::parse(&raw).expect("BTF");
        let id = |name| types.function(name).map(|function| function.id.0);
        let (Some(packet), Some(frame)) = (id("bpf_dynptr_from_skb"), id("bpf_dynptr_from_xdp")) else {
            return eprintln!("skipped: this kernel has no such functions (before 6.4)");
        };
        let tracepoint = types.tracepoint(super::super::COPIED).expect("a tracepoint").id.0;
        // Every kernel with this function (6.12) has the first one for tracepoints.
        if id("bpf_copy_from_user_str").is_some() {
            assert!(at_tracepoint(tracepoint, packet), "{}", std::io::Error::last_os_error());
        }
        assert!(!at_tracepoint(tracepoint, frame), "a packet is no frame of XDP");
    }
}
