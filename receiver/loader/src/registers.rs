//! Positions of arguments in `struct pt_regs`, the context of kprobes.

use undercurrent_ebpf::abi::extra::ARGUMENTS;

/// The offsets of the first arguments in words on this architecture; `None` on unsupported architectures.
pub const REGISTERS: Option<[u32; ARGUMENTS as usize]> = if cfg!(target_arch = "x86_64") {
    // di, si, dx, cx, r8 and r9.
    Some([14, 13, 12, 11, 9, 8])
} else if cfg!(target_arch = "aarch64") {
    Some([0, 1, 2, 3, 4, 5])
} else {
    None
};
