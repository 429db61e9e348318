//! Hooks that record packets for later hooks. A lookup that finds no record still costs a cache miss.

use undercurrent_ebpf::abi::served;

use super::variable;

/// Bits of [`served`]; user space sets them after it has attached the programs.
#[unsafe(export_name = "hooks.served")]
#[unsafe(link_section = ".data.served")]
static SERVED: u64 = 0;

/// Returns true if a hook sees packets enter their socket's queue.
#[inline(always)]
pub fn enqueued() -> bool {
    variable(&SERVED) & served::ENQUEUED != 0
}

/// Returns true if the programs at copies to the application learn the readers of connections.
#[inline(always)]
pub fn copies_tell_readers() -> bool {
    variable(&SERVED) & served::READERS != 0
}

/// Returns true if a hook sees UDP send datagrams.
#[inline(always)]
pub fn sent() -> bool {
    variable(&SERVED) & served::SENT != 0
}
