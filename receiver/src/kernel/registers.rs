//! Where a kprobe's context, a `struct pt_regs`, has what the calling convention puts into registers.

use undercurrent_ebpf::abi::extra::ARGUMENTS;

/// Places in words.
pub struct Registers {
    /// Of the first arguments.
    pub arguments: [u32; ARGUMENTS as usize],
    /// Of what a function returns.
    pub returned: u32,
}

/// This architecture's; `None` where nobody has looked.
pub const REGISTERS: Option<Registers> = if cfg!(target_arch = "x86_64") {
    // di, si, dx, cx, r8 and r9; ax.
    Some(Registers { arguments: [14, 13, 12, 11, 9, 8], returned: 10 })
} else if cfg!(target_arch = "aarch64") {
    Some(Registers { arguments: [0, 1, 2, 3, 4, 5], returned: 0 })
} else {
    None
};
