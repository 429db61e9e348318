//! Which hooks leave traces. A look at where there is none costs as much as any: the table is not in the processor's caches.

use undercurrent_ebpf::abi::served;

use super::set_outside;

/// The bits of [`served`]; user space sets them once it has attached programs.
#[unsafe(export_name = "hooks.served")]
#[unsafe(link_section = ".data.served")]
static SERVED: u64 = 0;

/// Whether packets are seen where they enter their sockets' queues.
#[inline(always)]
pub fn enqueued() -> bool {
    set_outside(&SERVED) & served::ENQUEUED != 0
}

/// Whether datagrams are seen where UDP sends them.
#[inline(always)]
pub fn sent() -> bool {
    set_outside(&SERVED) & served::SENT != 0
}
