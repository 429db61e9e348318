//! Tests on the BTF of real kernels, on BTF laid out at random, and on damaged BTF.

pub(crate) mod builder;
mod hostile;
mod kernels;
mod layouts;
mod modules;
mod oracle;
mod reduce;
mod sparse;
#[path = "../../../../tests/support/types.rs"]
mod types;

use std::fs;

use super::{Btf, Target, VMLINUX, read};
pub use types::KERNELS;

/// The attachment targets of programs that the fixtures contain.
const FUNCTIONS: [&str; 13] = [
    "__udp_enqueue_schedule_skb",
    "ip6_rcv_core",
    "ip6_send_skb",
    "ip_rcv_core",
    "ip_send_skb",
    "skb_consume_udp",
    "sock_recvmsg",
    "tcp_queue_rcv",
    "tcp_recv_timestamp",
    "tcp_v4_rcv",
    "tcp_v6_rcv",
    "udp_rcv",
    "udpv6_rcv",
];
const TRACEPOINTS: [&str; 13] = [
    "cgroup_mkdir",
    "cgroup_rename",
    "cgroup_rmdir",
    "consume_skb",
    "kfree_skb",
    "net_dev_queue",
    "net_dev_start_xmit",
    "skb_copy_datagram_iovec",
    "softirq_entry",
    "softirq_exit",
    "softirq_raise",
    "tcp_retransmit_skb",
    "tcp_retransmit_synack",
];

fn targets() -> Vec<Target<'static>> {
    FUNCTIONS.map(Target::Function).into_iter().chain(TRACEPOINTS.map(Target::Tracepoint)).collect()
}

/// Returns the raw BTF of the running kernel; prints a message if it has none.
pub(crate) fn running_kernel() -> Option<Vec<u8>> {
    read(VMLINUX).inspect_err(|error| eprintln!("skipped on the running kernel: {error}")).ok()
}

/// Runs a check on the BTF of every fixture and of the running kernel, if it has BTF.
fn on_every_kernel(check: impl Fn(&str, &[u8])) {
    for kernel in &KERNELS {
        check(kernel.release, kernel.raw);
    }
    if let Some(raw) = running_kernel() {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
        check(release.trim(), &raw);
    }
}

fn parse(raw: &[u8]) -> Btf<'_> {
    Btf::parse(raw).expect("sound BTF")
}
