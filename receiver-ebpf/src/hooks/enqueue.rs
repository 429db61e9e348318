//! Arrival in a socket's receive queue.

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, fexit},
    programs::{FEntryContext, FExitContext},
};
use undercurrent_ebpf::abi::latency::{Layer, Transport};

use super::{reached_socket, subject::InSocket};
use crate::kernel::{
    filter::{Which, apart},
    owner,
};

/// A packet is, or is about to be, in its socket's queue.
///
/// # Safety
/// Both are typed and trusted pointers, to a `sock` and an `sk_buff`.
#[inline(always)]
unsafe fn enqueued(sock: *const u8, skb: *const u8, transport: Transport, which: Which) {
    let packet = InSocket { sock, skb };
    // SAFETY: by the caller.
    let slot = || unsafe { owner::slot_of_receiver(sock) };
    // SAFETY: by the caller.
    unsafe { reached_socket(skb, &packet, Layer::SocketEnqueued, transport, which, slot) };
}

/// `int tcp_queue_rcv(struct sock *sk, struct sk_buff *skb, bool *fragstolen)`, 5.10 to 7.3. At its entry: it may free
/// the packet by merging it into the queue's last.
#[fentry]
fn tcp_queue_rcv(ctx: FEntryContext) -> i32 {
    // SAFETY: the arguments have the types above.
    apart(|which| unsafe { enqueued(ctx.arg(0), ctx.arg(1), Transport::Tcp, which) })
}

/// `int __udp_enqueue_schedule_skb(struct sock *sk, struct sk_buff *skb)`, 5.10 to 7.3. At its exit: what the socket had
/// no room for was not enqueued.
#[fexit]
fn udp_enqueue_schedule_skb(ctx: FExitContext) -> i32 {
    // SAFETY: the word after the two arguments is the return value; `bpf_get_func_ret` would need 5.17.
    let refused = unsafe { *ctx.as_ptr().cast::<u64>().add(2) } as i32;
    if refused != 0 {
        return 0;
    }
    // SAFETY: the arguments have the types above.
    apart(|which| unsafe { enqueued(ctx.arg(0), ctx.arg(1), Transport::Udp, which) })
}
