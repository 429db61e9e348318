//! Errors that sockets report.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::context::Arguments as _, signals::tcp_transactions};

/// Tracepoint `inet_sk_error_report(const struct sock *sk)`, 5.14 to 7.3: the error is in the socket.
#[btf_tracepoint(function = "inet_sk_error_report")]
fn inet_sk_error_report(ctx: BtfTracePointContext) -> i32 {
    tcp_transactions::failed(ctx.pointer(0));
    0
}
