//! Arrival in a socket's receive queue.

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, fexit, kprobe, kretprobe, map},
    maps::PerCpuArray,
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use undercurrent_ebpf::abi::latency::{Layer, Transport};

use super::{
    arguments::{first, returned, second},
    reached_socket,
    subject::InSocket,
};
use crate::kernel::{
    filter::{Which, apart},
    owner,
    pointer::{Typed, Untyped},
};

/// A packet is, or is about to be, in its socket's queue.
///
/// # Safety
/// Both are typed and trusted pointers, to a `sock` and an `sk_buff`.
#[inline(always)]
unsafe fn enqueued(sock: *const u8, skb: *const u8, transport: Transport, which: Which) {
    // SAFETY: by the caller.
    let packet = unsafe { InSocket { sock: Typed::new(sock), skb: Typed::new(skb) } };
    // SAFETY: by the caller.
    let slot = move || unsafe { owner::slot_of_owner(sock) };
    reached_socket(packet.skb, &packet, Layer::SocketEnqueued, transport, which, slot);
}

/// The same where a kprobe has them. What is kept with a socket is out of its reach: the socket belongs to whoever made it.
#[inline(always)]
fn probed(sock: Untyped, skb: Untyped, transport: Transport) {
    let slot = || owner::slot(owner::creator(sock));
    reached_socket(skb, &InSocket { sock, skb }, Layer::SocketEnqueued, transport, Which::Chosen, slot);
}

/// `int tcp_queue_rcv(struct sock *sk, struct sk_buff *skb, bool *fragstolen)`, 5.10 to 7.3. At its entry: it may free
/// the packet by merging it into the queue's last.
#[fentry]
fn tcp_queue_rcv(ctx: FEntryContext) -> i32 {
    apart(
        // Inlined at once, or the compiler makes one code of both cases again.
        #[inline(always)]
        // SAFETY: the arguments have the types above.
        |which| unsafe { enqueued(ctx.arg(0), ctx.arg(1), Transport::Tcp, which) },
    )
}

/// The same function as [`tcp_queue_rcv`].
#[kprobe]
fn tcp_queue_rcv_probe(ctx: ProbeContext) -> i32 {
    probed(Untyped(first(&ctx)), Untyped(second(&ctx)), Transport::Tcp);
    0
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
    apart(
        // As above.
        #[inline(always)]
        // SAFETY: the arguments have the types above.
        |which| unsafe { enqueued(ctx.arg(0), ctx.arg(1), Transport::Udp, which) },
    )
}

/// The packet that this CPU is about to enqueue. One is enough: the function runs with bottom halves off, whose place no
/// other packet takes on that CPU.
#[map]
static ENQUEUING: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(1, 0);

/// The same function as [`udp_enqueue_schedule_skb`], at its entry: at its exit nothing says what its arguments were.
#[kprobe]
fn udp_enqueue_entry_probe(ctx: ProbeContext) -> i32 {
    if let Some(place) = ENQUEUING.get_ptr_mut(0) {
        // SAFETY: this CPU's entry, which lives as long as the program.
        unsafe { *place = [first(&ctx) as u64, second(&ctx) as u64] };
    }
    0
}

/// The same at its exit. What it was entered with before the programs were attached is not known.
#[kretprobe]
fn udp_enqueue_exit_probe(ctx: RetProbeContext) -> i32 {
    let Some(place) = ENQUEUING.get_ptr_mut(0) else { return 0 };
    // SAFETY: as above.
    let [sock, skb] = unsafe { core::ptr::replace(place, [0; 2]) };
    let refused = returned(&ctx) as i32;
    if refused == 0 && skb != 0 {
        probed(Untyped(sock as *const u8), Untyped(skb as *const u8), Transport::Udp);
    }
    0
}
