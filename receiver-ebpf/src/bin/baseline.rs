//! Empty programs, one for each hook, to measure the cost of entering a program. `cargo xtask bench hooks` subtracts it. One
//! more program reads the clock, as every latency event does.
#![no_std]
#![no_main]

#[path = "../kernel/object.rs"]
mod object;

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{btf_tracepoint, cgroup_skb, cgroup_sock, cgroup_sock_addr, fentry, fexit, kprobe, kretprobe},
    programs::{
        BtfTracePointContext, FEntryContext, FExitContext, ProbeContext, RetProbeContext, SkBuffContext,
        SockAddrContext, SockContext,
    },
};

/// Declares an empty program for each hook: attribute, context and return value.
macro_rules! empty {
    ($($(#[$attribute:meta])* $name:ident($context:ty) = $verdict:literal;)+) => {$(
        $(#[$attribute])*
        fn $name(_: $context) -> i32 {
            $verdict
        }
    )+};
}

empty! {
    #[btf_tracepoint(function = "netif_receive_skb")] netif_receive_skb(BtfTracePointContext) = 0;
    #[fentry] ip_rcv_core(FEntryContext) = 0;
    #[fentry] ip6_rcv_core(FEntryContext) = 0;
    #[kprobe] ip_rcv_core_probe(ProbeContext) = 0;
    #[kprobe] ip6_rcv_core_probe(ProbeContext) = 0;
    #[fentry] tcp_v4_rcv(FEntryContext) = 0;
    #[fentry] tcp_v6_rcv(FEntryContext) = 0;
    #[fentry] udp_rcv(FEntryContext) = 0;
    #[fentry] udpv6_rcv(FEntryContext) = 0;
    #[kprobe] tcp_v4_rcv_probe(ProbeContext) = 0;
    #[kprobe] tcp_v6_rcv_probe(ProbeContext) = 0;
    #[kprobe] udp_rcv_probe(ProbeContext) = 0;
    #[kprobe] udpv6_rcv_probe(ProbeContext) = 0;
    #[fentry] tcp_queue_rcv(FEntryContext) = 0;
    #[fentry] udp_enqueue_schedule_skb(FEntryContext) = 0;
    #[kprobe] tcp_queue_rcv_probe(ProbeContext) = 0;
    #[kprobe] udp_enqueue_schedule_skb_probe(ProbeContext) = 0;
    #[btf_tracepoint(function = "sk_data_ready")] sk_data_ready(BtfTracePointContext) = 0;
    #[fentry] tcp_recv_timestamp(FEntryContext) = 0;
    #[fentry] skb_consume_udp(FEntryContext) = 0;
    #[kprobe] tcp_recv_timestamp_probe(ProbeContext) = 0;
    #[kprobe] skb_consume_udp_probe(ProbeContext) = 0;
    #[btf_tracepoint(function = "skb_copy_datagram_iovec")] skb_copy_datagram_iovec(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "softirq_raise")] softirq_raise(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "softirq_entry")] softirq_entry(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "softirq_exit")] softirq_exit(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "sock_recv_length")] sock_recv_length(BtfTracePointContext) = 0;
    #[cgroup_sock_addr(recvmsg4)] datagram_read(SockAddrContext) = 1;
    #[cgroup_sock_addr(recvmsg6)] datagram_read_ipv6(SockAddrContext) = 1;
    #[btf_tracepoint(function = "inet_sk_error_report")] inet_sk_error_report(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "tcp_retransmit_skb")] tcp_retransmit_skb(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "tcp_retransmit_synack")] tcp_retransmit_synack(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "kfree_skb")] kfree_skb(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "kfree_skb")] kfree_skb_unexplained(BtfTracePointContext) = 0;
    #[fentry] ip_send_skb(FEntryContext) = 0;
    #[fentry] ip6_send_skb(FEntryContext) = 0;
    #[btf_tracepoint(function = "net_dev_queue")] net_dev_queue(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "net_dev_start_xmit")] net_dev_start_xmit(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "consume_skb")] consume_skb(BtfTracePointContext) = 0;
    #[fexit] sock_recvmsg(FExitContext) = 0;
    #[cgroup_sock(sock_create)] socket_created(SockContext) = 1;
    #[btf_tracepoint(function = "cgroup_mkdir")] cgroup_mkdir(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "cgroup_rmdir")] cgroup_rmdir(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "cgroup_rename")] cgroup_rename(BtfTracePointContext) = 0;
    #[fentry] extra_0(FEntryContext) = 0;
    #[kprobe] extra_0_probe(ProbeContext) = 0;
    #[fentry] extra_1(FEntryContext) = 0;
    #[kprobe] extra_1_probe(ProbeContext) = 0;
    #[fentry] extra_2(FEntryContext) = 0;
    #[kprobe] extra_2_probe(ProbeContext) = 0;
    #[fentry] extra_3(FEntryContext) = 0;
    #[kprobe] extra_3_probe(ProbeContext) = 0;
    #[fentry] extra_4(FEntryContext) = 0;
    #[kprobe] extra_4_probe(ProbeContext) = 0;
    #[fentry] extra_5(FEntryContext) = 0;
    #[kprobe] extra_5_probe(ProbeContext) = 0;
    #[fentry] extra_6(FEntryContext) = 0;
    #[kprobe] extra_6_probe(ProbeContext) = 0;
    #[fentry] extra_7(FEntryContext) = 0;
    #[kprobe] extra_7_probe(ProbeContext) = 0;
    #[cgroup_skb(ingress)] cgroup_ingress(SkBuffContext) = 1;
    #[cgroup_skb(ingress)] cgroup_charge(SkBuffContext) = 1;
    #[btf_tracepoint(function = "sock_send_length")] send_exit(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "sock_recv_length")] receive_exit(BtfTracePointContext) = 0;
    #[fentry] inet_sendmsg(FEntryContext) = 0;
    #[fexit] inet_sendmsg_exit(FExitContext) = 0;
    #[kprobe] inet_sendmsg_probe(ProbeContext) = 0;
    #[kretprobe] inet_sendmsg_exit_probe(RetProbeContext) = 0;
    #[fentry] inet6_sendmsg(FEntryContext) = 0;
    #[fexit] inet6_sendmsg_exit(FExitContext) = 0;
    #[kprobe] inet6_sendmsg_probe(ProbeContext) = 0;
    #[kretprobe] inet6_sendmsg_exit_probe(RetProbeContext) = 0;
    #[fentry] inet_recvmsg(FEntryContext) = 0;
    #[fexit] inet_recvmsg_exit(FExitContext) = 0;
    #[kprobe] inet_recvmsg_probe(ProbeContext) = 0;
    #[kretprobe] inet_recvmsg_exit_probe(RetProbeContext) = 0;
    #[fentry] inet6_recvmsg(FEntryContext) = 0;
    #[fexit] inet6_recvmsg_exit(FExitContext) = 0;
    #[kprobe] inet6_recvmsg_probe(ProbeContext) = 0;
    #[kretprobe] inet6_recvmsg_exit_probe(RetProbeContext) = 0;
    #[btf_tracepoint(function = "sched_waking")] sched_waking(BtfTracePointContext) = 0;
    #[btf_tracepoint(function = "sched_switch")] sched_switch(BtfTracePointContext) = 0;
}

/// Reads only the clock.
#[btf_tracepoint(function = "net_dev_start_xmit")]
fn clock_alone(_: BtfTracePointContext) -> i32 {
    // SAFETY: the helper has no arguments.
    unsafe { bpf_ktime_get_ns() };
    0
}
