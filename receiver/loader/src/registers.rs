//! Positions of arguments and return values in `struct pt_regs`, the context of kprobes.

use undercurrent_ebpf::abi::extra::ARGUMENTS;

/// Offsets in words.
#[derive(Clone, Copy, Default)]
pub struct Registers {
    /// The offsets of the first arguments.
    pub arguments: [u32; ARGUMENTS as usize],
    /// The offset of the return value.
    pub returned: u32,
}

/// The offsets on this architecture; `None` on unsupported architectures.
pub const REGISTERS: Option<Registers> = if cfg!(target_arch = "x86_64") {
    // di, si, dx, cx, r8 and r9; ax.
    Some(Registers { arguments: [14, 13, 12, 11, 9, 8], returned: 10 })
} else if cfg!(target_arch = "aarch64") {
    Some(Registers { arguments: [0, 1, 2, 3, 4, 5], returned: 0 })
} else {
    None
};
