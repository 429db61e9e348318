//! The hooks in the kernel and their alternates, in order of preference.
//!
//! All alternates of a hook measure one event; `leaves_out` names the packets that an alternate misses. The name of a
//! program is its symbol in the eBPF object.

use super::{constant::Feature, cpu_events::CpuEvent};
use crate::options::AttachKind;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// At a kernel function's entry, through a BPF trampoline.
    Fentry,
    /// At a kernel function's exit, through a BPF trampoline.
    Fexit,
    /// At a kernel function's entry, through a kprobe (a breakpoint, or ftrace where the kernel optimizes it).
    Kprobe,
    /// At a kernel function's exit, through a kretprobe.
    Kretprobe,
    /// At a tracepoint, with typed arguments.
    Tracepoint,
    /// On every packet that a socket below the root cgroup will receive.
    CgroupIngress,
    /// On every IPv4 and IPv6 socket that a task below the root cgroup creates.
    CgroupSocket,
    /// On every read of a datagram with its sender's address by a task below the root cgroup.
    CgroupRead,
    /// On an event of every CPU.
    CpuEvent(CpuEvent),
}

impl Attachment {
    /// Returns the kind of attachment that the configuration uses.
    #[must_use]
    pub const fn kind(self) -> AttachKind {
        match self {
            Self::Fentry | Self::Fexit => AttachKind::Fentry,
            Self::Kprobe | Self::Kretprobe => AttachKind::Kprobe,
            Self::Tracepoint => AttachKind::Tracepoint,
            Self::CgroupIngress | Self::CgroupSocket | Self::CgroupRead => AttachKind::Cgroup,
            Self::CpuEvent(_) => AttachKind::PerfEvent,
        }
    }
}

/// A program of the eBPF object and its attachment point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// The program's symbol.
    pub symbol: &'static str,
    /// How it is attached.
    pub attachment: Attachment,
    /// The kernel function or tracepoint.
    pub target: &'a str,
}

/// A set of programs that can serve a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternate<'a> {
    /// The name in `doctor`, logs and metrics.
    pub name: &'static str,
    /// The programs of the alternate; a healthy hook has all of them attached.
    pub programs: &'a [Program<'a>],
    /// The packets that this alternate misses, if it sees fewer than the first alternate.
    pub leaves_out: Option<&'static str>,
    /// The hook and the name of its alternate beside which the programs are enough; `None` if they always are.
    pub beside: Option<(&'static Hook, &'static str)>,
    /// True if the counts of some programs without the others would be wrong. The planner then attaches all or none.
    pub needs_all: bool,
}

/// Programs of another hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// The other hook.
    pub hook: &'static Hook,
    /// The name of its alternate.
    pub alternate: &'static str,
    /// What the kernel must have for the programs to serve both.
    pub requires: Option<Feature>,
}

/// A point in the kernel at which programs measure.
#[derive(Debug, PartialEq, Eq)]
pub struct Hook {
    /// The name in `doctor`, logs and metrics.
    pub name: &'static str,
    /// True if the programs compare receive timestamps of packets with the clock.
    pub reads_timestamps: bool,
    /// True if ordinary packets make the programs run.
    pub sees_traffic: bool,
    /// Programs that also serve this hook.
    pub within: Option<Within>,
    /// The alternates, best first.
    pub alternates: &'static [Alternate<'static>],
}

/// Returns a program that attaches to the entry of the function with the program's name.
#[must_use]
pub const fn fentry(target: &'static str) -> Program<'static> {
    Program { symbol: target, attachment: Attachment::Fentry, target }
}

/// Returns a program that attaches to the exit of a function.
#[must_use]
pub const fn fexit(symbol: &'static str, target: &'static str) -> Program<'static> {
    Program { symbol, attachment: Attachment::Fexit, target }
}

/// Returns a program that attaches to the entry of a function by kprobe.
#[must_use]
pub const fn kprobe(symbol: &'static str, target: &'static str) -> Program<'static> {
    Program { symbol, attachment: Attachment::Kprobe, target }
}

/// Returns a program that attaches to the exit of a function by kprobe.
#[must_use]
pub const fn kretprobe(symbol: &'static str, target: &'static str) -> Program<'static> {
    Program { symbol, attachment: Attachment::Kretprobe, target }
}

/// Returns a program that attaches to the tracepoint with the program's name.
#[must_use]
pub const fn tracepoint(target: &'static str) -> Program<'static> {
    Program { symbol: target, attachment: Attachment::Tracepoint, target }
}

/// Returns a program that runs on an event of every CPU.
#[must_use]
pub const fn on_every_cpu(event: CpuEvent, target: &'static str) -> Program<'static> {
    Program { symbol: event.program(), attachment: Attachment::CpuEvent(event), target }
}

/// Returns an alternate that misses no packets.
#[must_use]
pub const fn whole(name: &'static str, programs: &'static [Program<'static>]) -> Alternate<'static> {
    Alternate { name, programs, leaves_out: None, beside: None, needs_all: false }
}

/// Returns an alternate that misses no packets, and that is of no use without each of its programs.
#[must_use]
pub const fn all_or_none(name: &'static str, programs: &'static [Program<'static>]) -> Alternate<'static> {
    Alternate { name, programs, leaves_out: None, beside: None, needs_all: true }
}

/// The name of alternates that use BPF trampolines.
pub const FENTRY: &str = "fentry";
/// The name of alternates that use kprobes.
pub const KPROBE: &str = "kprobe";
/// The name of alternates with a program that the kernel runs for each packet of a socket.
pub const CGROUP_SKB: &str = "cgroup_skb";
/// The name of alternates with a program that the kernel runs for each read of a datagram.
pub const CGROUP_READ: &str = "cgroup_read";
/// The name of alternates that use tracepoints.
pub const TRACEPOINT: &str = "tracepoint";

/// The kernel raises a network softirq.
pub static SOFTIRQ_RAISE: Hook = Hook {
    name: "softirq_raise",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("softirq_raise")])],
};
/// A softirq starts.
pub static SOFTIRQ_ENTRY: Hook = Hook {
    name: "softirq_entry",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("softirq_entry")])],
};
/// A softirq ends.
pub static SOFTIRQ_EXIT: Hook = Hook {
    name: "softirq_exit",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("softirq_exit")])],
};
/// A task is woken.
pub static SCHED_WAKING: Hook = Hook {
    name: "sched_waking",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("sched_waking")])],
};
/// A CPU switches to another task.
pub static SCHED_SWITCH: Hook = Hook {
    name: "sched_switch",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("sched_switch")])],
};
/// A driver passes a packet to the network stack.
pub static DRIVER: Hook = Hook {
    name: "driver",
    reads_timestamps: true,
    sees_traffic: false,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("netif_receive_skb")])],
};
/// A packet enters the network layer.
pub static IP: Hook = Hook {
    name: "ip",
    reads_timestamps: true,
    sees_traffic: true,
    within: None,
    alternates: &[
        whole(FENTRY, &[fentry("ip_rcv_core"), fentry("ip6_rcv_core")]),
        whole(KPROBE, &[kprobe("ip_rcv_core_probe", "ip_rcv_core"), kprobe("ip6_rcv_core_probe", "ip6_rcv_core")]),
    ],
};
/// This host forwards a packet by routing, for example to a container.
pub static FORWARD: Hook = Hook {
    name: "forward",
    reads_timestamps: true,
    sees_traffic: false,
    within: None,
    alternates: &[
        whole(FENTRY, &[fentry("ip_forward"), fentry("ip6_forward")]),
        whole(KPROBE, &[kprobe("ip_forward_probe", "ip_forward"), kprobe("ip6_forward_probe", "ip6_forward")]),
    ],
};
/// A forwarded packet enters the transport protocol.
pub static HOST: Hook = Hook {
    name: "host",
    reads_timestamps: true,
    sees_traffic: false,
    within: Some(Within { hook: &TRANSPORT, alternate: CGROUP_SKB, requires: Some(Feature::SocketOfPacket) }),
    alternates: &[],
};
/// A packet enters the transport protocol. The packet of the first alternate has its receiving socket, and so its owner.
pub static TRANSPORT: Hook = Hook {
    name: "transport",
    reads_timestamps: true,
    sees_traffic: true,
    within: None,
    alternates: &[
        whole(
            CGROUP_SKB,
            &[Program { symbol: "cgroup_ingress", attachment: Attachment::CgroupIngress, target: "root cgroup" }],
        ),
        whole(FENTRY, &[fentry("tcp_v4_rcv"), fentry("tcp_v6_rcv"), fentry("udp_rcv"), fentry("udpv6_rcv")]),
        whole(
            KPROBE,
            &[
                kprobe("tcp_v4_rcv_probe", "tcp_v4_rcv"),
                kprobe("tcp_v6_rcv_probe", "tcp_v6_rcv"),
                kprobe("udp_rcv_probe", "udp_rcv"),
                kprobe("udpv6_rcv_probe", "udpv6_rcv"),
            ],
        ),
    ],
};
/// Enqueues a datagram, or refuses it.
const UDP_ENQUEUE: &str = "__udp_enqueue_schedule_skb";

/// The kernel appends a packet to a socket's receive queue.
pub static SOCKET_ENQUEUED: Hook = Hook {
    name: "socket_enqueued",
    reads_timestamps: true,
    sees_traffic: true,
    within: None,
    alternates: &[
        whole(
            FENTRY,
            &[fentry("tcp_queue_rcv"), Program { symbol: "udp_enqueue_schedule_skb", ..fentry(UDP_ENQUEUE) }],
        ),
        whole(
            KPROBE,
            &[kprobe("tcp_queue_rcv_probe", "tcp_queue_rcv"), kprobe("udp_enqueue_schedule_skb_probe", UDP_ENQUEUE)],
        ),
        Alternate {
            name: TRACEPOINT,
            programs: &[tracepoint("sk_data_ready")],
            leaves_out: Some("TCP segments that fill a gap, and UDP datagrams that were read immediately"),
            beside: None,
            needs_all: false,
        },
    ],
};
/// A packet arrives for a socket, and its wait begins: at the entry of the transport protocol, or else in the socket's receive queue.
pub static SOCKET_ARRIVAL: Hook = Hook {
    name: "socket_arrival",
    within: Some(Within { hook: &TRANSPORT, alternate: CGROUP_SKB, requires: Some(Feature::SocketOfPacket) }),
    ..SOCKET_ENQUEUED
};
/// The kernel copies a packet's data to the application.
pub static SOCKET_READ: Hook = Hook {
    name: "socket_read",
    reads_timestamps: true,
    sees_traffic: true,
    within: None,
    alternates: &[
        whole(FENTRY, &[fentry("tcp_recv_timestamp"), fentry("skb_consume_udp")]),
        whole(
            KPROBE,
            &[
                kprobe("tcp_recv_timestamp_probe", "tcp_recv_timestamp"),
                kprobe("skb_consume_udp_probe", "skb_consume_udp"),
            ],
        ),
        Alternate {
            name: TRACEPOINT,
            programs: &[tracepoint("skb_copy_datagram_iovec")],
            leaves_out: Some(
                "most UDP datagrams: those in one linear buffer, and those with a checksum that is verified during the copy",
            ),
            beside: None,
            needs_all: false,
        },
    ],
};

/// UDP sends a packet.
pub static TRANSMIT_SEND: Hook = Hook {
    name: "transmit_send",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    // No kprobe alternate: the kernel skips a kprobe that hits while another kprobe's program runs on the CPU. A busy
    // sender lost a fourth of its packets that way.
    alternates: &[whole(FENTRY, &[fentry("ip_send_skb"), fentry("ip6_send_skb")])],
};
/// The kernel passes a packet to the device's qdisc, if the device has one.
pub static TRANSMIT_QUEUE: Hook = Hook {
    name: "transmit_queue",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("net_dev_queue")])],
};
/// The kernel passes a packet to the device's driver.
pub static TRANSMIT_START: Hook = Hook {
    name: "transmit_start",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("net_dev_start_xmit")])],
};
/// The kernel frees a consumed packet: the driver has sent it, or a task has read it.
pub static TRANSMIT_END: Hook = Hook {
    name: "transmit_end",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(TRACEPOINT, &[tracepoint("consume_skb")])],
};

/// The kernel drops a packet.
pub static DROP: Hook = Hook {
    name: "drop",
    reads_timestamps: false,
    sees_traffic: false,
    within: None,
    alternates: &[
        whole(TRACEPOINT, &[tracepoint("kfree_skb")]),
        Alternate {
            name: TRACEPOINT,
            programs: &[Program {
                symbol: "kfree_skb_unexplained",
                attachment: Attachment::Tracepoint,
                target: "kfree_skb",
            }],
            leaves_out: Some("why a packet is dropped, which kernels before 5.17 do not say"),
            beside: None,
            needs_all: false,
        },
    ],
};

/// A task reads a socket; the socket is then attributed to the task's workload.
pub static SOCKET_READER: Hook = Hook {
    name: "socket_reader",
    reads_timestamps: false,
    sees_traffic: true,
    within: Some(Within { hook: &SOCKET_READ, alternate: FENTRY, requires: None }),
    alternates: &[
        whole(TRACEPOINT, &[tracepoint("sock_recv_length")]),
        whole("fexit", &[fexit("sock_recvmsg", "sock_recvmsg")]),
    ],
};
/// A task reads a socket, as [`SOCKET_READER`], with a program for datagrams only: the programs at `socket_read` see each read of a
/// connection.
pub static DATAGRAM_READER: Hook = Hook {
    name: "datagram_reader",
    alternates: &[
        Alternate {
            name: CGROUP_READ,
            programs: &[
                Program { symbol: "datagram_read", attachment: Attachment::CgroupRead, target: "root cgroup" },
                Program { symbol: "datagram_read_ipv6", attachment: Attachment::CgroupRead, target: "root cgroup" },
            ],
            // Reads without the sender's address are a limitation of attribution, and of no other signal.
            leaves_out: None,
            beside: Some((&SOCKET_READ, TRACEPOINT)),
            needs_all: true,
        },
        whole(TRACEPOINT, &[tracepoint("sock_recv_length")]),
        whole("fexit", &[fexit("sock_recvmsg", "sock_recvmsg")]),
    ],
    ..SOCKET_READER
};
/// A task creates a socket, listens or connects with it; the socket is attributed to the task's workload until the first read.
pub static SOCKET_CREATOR: Hook = Hook {
    name: "socket_creator",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(
        "cgroup_sock",
        &[
            Program { symbol: "socket_created", attachment: Attachment::CgroupSocket, target: "root cgroup" },
            tracepoint("inet_sock_set_state"),
        ],
    )],
};
/// A cgroup is created, removed or renamed.
pub static CGROUP_CHANGE: Hook = Hook {
    name: "cgroup_change",
    reads_timestamps: false,
    sees_traffic: false,
    within: None,
    alternates: &[whole(
        TRACEPOINT,
        &[tracepoint("cgroup_mkdir"), tracepoint("cgroup_rmdir"), tracepoint("cgroup_rename")],
    )],
};

/// The hooks that several modules use: first along a packet's path, then the hooks for attribution. A signal's module
/// declares a hook that only this signal uses.
pub static SHARED: [&Hook; 22] = [
    // Before the raise: a raise whose run is not seen would make the wait of the next run too long.
    &SOFTIRQ_ENTRY,
    &SOFTIRQ_EXIT,
    &SOFTIRQ_RAISE,
    &SCHED_WAKING,
    &SCHED_SWITCH,
    &DRIVER,
    &FORWARD,
    &IP,
    &TRANSPORT,
    &HOST,
    &SOCKET_ENQUEUED,
    &SOCKET_ARRIVAL,
    &SOCKET_READ,
    &TRANSMIT_SEND,
    &TRANSMIT_QUEUE,
    &TRANSMIT_START,
    &TRANSMIT_END,
    &DROP,
    &SOCKET_READER,
    &DATAGRAM_READER,
    &SOCKET_CREATOR,
    &CGROUP_CHANGE,
];
