//! The hooks that only `network_cpu` uses.

use super::settings::{Exact, Settings};
use crate::kernel::hooks::{
    self, Alternate, Attachment, FENTRY, Hook, KPROBE, Program, Within, all_or_none, fentry, fexit, kprobe, kretprobe,
};

/// A packet is about to enter its receiving socket, which determines the workload that pays for it.
pub static RECEIVER: Hook = Hook {
    name: "receiver",
    reads_timestamps: false,
    sees_traffic: true,
    within: Some(Within { hook: &hooks::TRANSPORT, alternate: hooks::CGROUP_SKB, requires: None }),
    alternates: &[Alternate {
        name: hooks::CGROUP_SKB,
        programs: &[Program { symbol: "cgroup_charge", attachment: Attachment::CgroupIngress, target: "root cgroup" }],
        leaves_out: None,
        beside: None,
        needs_all: false,
    }],
};

/// The end of a send, 6.3 and later.
const SEND_EXIT: Program<'static> =
    Program { symbol: "send_exit", attachment: Attachment::Tracepoint, target: "sock_send_length" };
/// The end of a read of a socket, 6.3 and later.
const RECEIVE_EXIT: Program<'static> =
    Program { symbol: "receive_exit", attachment: Attachment::Tracepoint, target: "sock_recv_length" };

/// A task enters or leaves a socket call. The hook of switches is needed too: a call must not run on while another task has the CPU.
pub static SOCKET_CALL: Hook = Hook {
    name: "socket_call",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[
        all_or_none(
            "fentry_tracepoint",
            &[
                SEND_EXIT,
                RECEIVE_EXIT,
                fentry("inet_sendmsg"),
                fentry("inet6_sendmsg"),
                fentry("inet_recvmsg"),
                fentry("inet6_recvmsg"),
            ],
        ),
        all_or_none(
            FENTRY,
            &[
                fentry("inet_sendmsg"),
                fexit("inet_sendmsg_exit", "inet_sendmsg"),
                fentry("inet6_sendmsg"),
                fexit("inet6_sendmsg_exit", "inet6_sendmsg"),
                fentry("inet_recvmsg"),
                fexit("inet_recvmsg_exit", "inet_recvmsg"),
                fentry("inet6_recvmsg"),
                fexit("inet6_recvmsg_exit", "inet6_recvmsg"),
            ],
        ),
        all_or_none(
            "kprobe_tracepoint",
            &[
                SEND_EXIT,
                RECEIVE_EXIT,
                kprobe("inet_sendmsg_probe", "inet_sendmsg"),
                kprobe("inet6_sendmsg_probe", "inet6_sendmsg"),
                kprobe("inet_recvmsg_probe", "inet_recvmsg"),
                kprobe("inet6_recvmsg_probe", "inet6_recvmsg"),
            ],
        ),
        all_or_none(
            KPROBE,
            &[
                kprobe("inet_sendmsg_probe", "inet_sendmsg"),
                kretprobe("inet_sendmsg_exit_probe", "inet_sendmsg"),
                kprobe("inet6_sendmsg_probe", "inet6_sendmsg"),
                kretprobe("inet6_sendmsg_exit_probe", "inet6_sendmsg"),
                kprobe("inet_recvmsg_probe", "inet_recvmsg"),
                kretprobe("inet_recvmsg_exit_probe", "inet_recvmsg"),
                kprobe("inet6_recvmsg_probe", "inet6_recvmsg"),
                kretprobe("inet6_recvmsg_exit_probe", "inet6_recvmsg"),
            ],
        ),
    ],
};

/// Returns the hooks that the settings require.
pub fn required(settings: &Settings) -> Vec<&'static Hook> {
    let softirqs = [&hooks::SOFTIRQ_ENTRY, &hooks::SOFTIRQ_EXIT, &hooks::DROP, &RECEIVER];
    match settings.exact() {
        Exact::None => Vec::new(),
        Exact::Softirqs => softirqs.to_vec(),
        Exact::All => softirqs.into_iter().chain([&hooks::SCHED_SWITCH, &SOCKET_CALL]).collect(),
    }
}
