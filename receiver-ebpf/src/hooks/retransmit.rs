//! TCP sends again what was not acknowledged.

use aya_ebpf::{EbpfContext as _, macros::btf_tracepoint, programs::BtfTracePointContext};

use super::read::peer_network;
use crate::{
    kernel::{
        fields::{SKB_CONTROL, TCP_SEGMENTS},
        owner,
        pointer::Typed,
        set_outside,
    },
    signals::tcp_retransmits,
};

/// Arguments of the running kernel's tracepoint.
#[unsafe(export_name = "arguments.tcp_retransmit_skb")]
#[unsafe(link_section = ".rodata.flags")]
static ARGUMENTS: u32 = 0;

/// Tracepoint `tcp_retransmit_skb(const struct sock *sk, const struct sk_buff *skb)`, 5.10 and later, when a packet
/// has been sent again; by 6.18 with `int err` after these, and also where the packet could not be sent.
#[btf_tracepoint(function = "tcp_retransmit_skb")]
fn tcp_retransmit_skb(ctx: BtfTracePointContext) -> i32 {
    let failed = set_outside(&ARGUMENTS) > 2 && {
        // SAFETY: the kernel passes an argument more.
        let error = unsafe { *ctx.as_ptr().cast::<u64>().add(2) };
        error as i32 != 0
    };
    if !failed {
        // SAFETY: argument 1 is a packet in TCP's hands.
        let segments = unsafe { TCP_SEGMENTS.load(SKB_CONTROL.begins(ctx.arg(1))) };
        sent_again(ctx.arg(0), ctx.arg(0), segments.into());
    }
    0
}

/// Tracepoint `tcp_retransmit_synack(const struct sock *sk, const struct request_sock *req)`, 5.10 to 7.3: the second
/// segment of a handshake is sent again, by a listening socket.
#[btf_tracepoint(function = "tcp_retransmit_synack")]
fn tcp_retransmit_synack(ctx: BtfTracePointContext) -> i32 {
    sent_again(ctx.arg(0), ctx.arg(1), 1);
    0
}

/// `sock` owns the segments; `peer` knows the other end: a `sock`, or a `request_sock`, which begins like one.
#[inline(always)]
fn sent_again(sock: *const u8, peer: *const u8, segments: u64) {
    // SAFETY: typed and trusted arguments; both structs begin with a `sock_common`, where these fields are.
    let network = peer_network(unsafe { Typed::new(peer) });
    // SAFETY: as above.
    tcp_retransmits::sent_again(network, segments, || unsafe { owner::slot_of_owner(sock) });
}
