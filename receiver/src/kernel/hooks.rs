//! Where the kernel is listened to: every hook with its alternates, in the order of preference.
//!
//! Alternates of one hook mean the same; one that sees less says what it leaves out. A program's name is its symbol in
//! the object.

use crate::options::AttachKind;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// At a kernel function's entry, through a BPF trampoline.
    Fentry,
    /// At a kernel function's exit, through a BPF trampoline.
    Fexit,
    /// At a kernel function's entry, through a breakpoint or what the kernel makes of it.
    Kprobe,
    /// At its exit, the same way.
    Kretprobe,
    /// At a tracepoint, with typed arguments.
    Tracepoint,
    /// On every packet that a socket below the root cgroup is about to receive.
    CgroupIngress,
    /// On every IPv4 and IPv6 socket that a task below the root cgroup makes.
    CgroupSocket,
}

impl Attachment {
    /// What people call the way.
    #[must_use]
    pub const fn kind(self) -> AttachKind {
        match self {
            Self::Fentry | Self::Fexit => AttachKind::Fentry,
            Self::Kprobe | Self::Kretprobe => AttachKind::Kprobe,
            Self::Tracepoint => AttachKind::Tracepoint,
            Self::CgroupIngress | Self::CgroupSocket => AttachKind::Cgroup,
        }
    }
}

/// A program of the object, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// The program's symbol.
    pub symbol: &'static str,
    /// How it is attached.
    pub attachment: Attachment,
    /// The kernel function or tracepoint.
    pub target: &'a str,
}

/// One way to serve a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternate<'a> {
    /// What people call it.
    pub name: &'static str,
    /// All of these are attached.
    pub programs: &'a [Program<'a>],
    /// What this alternate does not see, where it sees less than the first.
    pub leaves_out: Option<&'static str>,
}

/// A place in the kernel where something is measured.
#[derive(Debug, PartialEq, Eq)]
pub struct Hook {
    /// The name in `doctor`, logs and metrics.
    pub name: &'static str,
    /// Whether its programs compare packets' receive timestamps with the clock.
    pub reads_timestamps: bool,
    /// Whether any packets make its programs run, and not only those that something happens to.
    pub sees_traffic: bool,
    /// The hook whose programs do the work of this one too, where an alternate of that name serves it.
    pub within: Option<(&'static Hook, &'static str)>,
    /// The ways to serve it, best first.
    pub alternates: &'static [Alternate<'static>],
}

/// A program at the entry of the function of its own name.
#[must_use]
pub const fn fentry(target: &'static str) -> Program<'static> {
    Program { symbol: target, attachment: Attachment::Fentry, target }
}

const fn kprobe(symbol: &'static str, target: &'static str) -> Program<'static> {
    Program { symbol, attachment: Attachment::Kprobe, target }
}

/// A program at the tracepoint of its own name.
#[must_use]
pub const fn tracepoint(target: &'static str) -> Program<'static> {
    Program { symbol: target, attachment: Attachment::Tracepoint, target }
}

/// An alternate that sees everything that the hook is for.
#[must_use]
pub const fn whole(name: &'static str, programs: &'static [Program<'static>]) -> Alternate<'static> {
    Alternate { name, programs, leaves_out: None }
}

/// What alternates of trampolines are called.
pub const FENTRY: &str = "fentry";
/// What alternates of kprobes are called.
pub const KPROBE: &str = "kprobe";

/// A network softirq is marked to run.
pub static SOFTIRQ_RAISE: Hook = Hook {
    name: "softirq_raise",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("softirq_raise")])],
};
/// A softirq begins to run.
pub static SOFTIRQ_ENTRY: Hook = Hook {
    name: "softirq_entry",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("softirq_entry")])],
};
/// A softirq ends.
pub static SOFTIRQ_EXIT: Hook = Hook {
    name: "softirq_exit",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("softirq_exit")])],
};
/// A packet leaves its driver for the stack.
pub static DRIVER: Hook = Hook {
    name: "driver",
    reads_timestamps: true,
    sees_traffic: false,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("netif_receive_skb")])],
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
/// A packet enters its transport protocol.
pub static TRANSPORT: Hook = Hook {
    name: "transport",
    reads_timestamps: true,
    sees_traffic: true,
    within: None,
    alternates: &[
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
        Alternate {
            name: "cgroup_skb",
            programs: &[Program {
                symbol: "cgroup_ingress",
                attachment: Attachment::CgroupIngress,
                target: "root cgroup",
            }],
            leaves_out: Some("packets that no socket waits for"),
        },
    ],
};
/// A packet is in its socket's receive queue.
pub static SOCKET_ENQUEUED: Hook = Hook {
    name: "socket_enqueued",
    reads_timestamps: true,
    sees_traffic: true,
    within: None,
    alternates: &[
        whole(
            FENTRY,
            &[
                fentry("tcp_queue_rcv"),
                Program {
                    symbol: "udp_enqueue_schedule_skb",
                    attachment: Attachment::Fexit,
                    target: "__udp_enqueue_schedule_skb",
                },
            ],
        ),
        whole(
            KPROBE,
            &[
                kprobe("tcp_queue_rcv_probe", "tcp_queue_rcv"),
                kprobe("udp_enqueue_entry_probe", "__udp_enqueue_schedule_skb"),
                Program {
                    symbol: "udp_enqueue_exit_probe",
                    attachment: Attachment::Kretprobe,
                    target: "__udp_enqueue_schedule_skb",
                },
            ],
        ),
        Alternate {
            name: "tracepoint",
            programs: &[tracepoint("sk_data_ready")],
            leaves_out: Some("TCP's segments that fill a gap, and UDP's datagrams that were read at once"),
        },
    ],
};
/// A packet's data is copied to the application.
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
            name: "tracepoint",
            programs: &[tracepoint("skb_copy_datagram_iovec")],
            leaves_out: Some("UDP datagrams that are small, or whose checksum is verified while they are copied"),
        },
    ],
};

/// UDP sends a packet.
pub static TRANSMIT_SEND: Hook = Hook {
    name: "transmit_send",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    // The kernel leaves out kprobes of packets that come while a kprobe's program runs: a fourth of what a busy sender got.
    alternates: &[whole(FENTRY, &[fentry("ip_send_skb"), fentry("ip6_send_skb")])],
};
/// A packet is handed to its device's qdisc, where it has one.
pub static TRANSMIT_QUEUE: Hook = Hook {
    name: "transmit_queue",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("net_dev_queue")])],
};
/// A device's driver gets a packet.
pub static TRANSMIT_START: Hook = Hook {
    name: "transmit_start",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("net_dev_start_xmit")])],
};
/// A packet has been used up: a driver has done with it, or somebody has read it.
pub static TRANSMIT_END: Hook = Hook {
    name: "transmit_end",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("consume_skb")])],
};

/// Somebody reads a socket, which becomes its owner.
pub static SOCKET_READER: Hook = Hook {
    name: "socket_reader",
    reads_timestamps: false,
    sees_traffic: true,
    within: Some((&SOCKET_READ, FENTRY)),
    alternates: &[
        whole("tracepoint", &[tracepoint("sock_recv_length")]),
        whole("fexit", &[Program { symbol: "sock_recvmsg", attachment: Attachment::Fexit, target: "sock_recvmsg" }]),
    ],
};
/// Somebody makes a socket, and owns it until it is read.
pub static SOCKET_CREATOR: Hook = Hook {
    name: "socket_creator",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[whole(
        "cgroup_sock",
        &[Program { symbol: "socket_created", attachment: Attachment::CgroupSocket, target: "root cgroup" }],
    )],
};
/// Cgroups come, go and change their names.
pub static CGROUP_CHANGE: Hook = Hook {
    name: "cgroup_change",
    reads_timestamps: false,
    sees_traffic: false,
    within: None,
    alternates: &[whole(
        "tracepoint",
        &[tracepoint("cgroup_mkdir"), tracepoint("cgroup_rmdir"), tracepoint("cgroup_rename")],
    )],
};

/// The hooks of several modules, in the order of a packet's path, then those that find the owner. A hook that one signal uses is
/// declared beside that signal.
pub static SHARED: [&Hook; 15] = [
    &SOFTIRQ_RAISE,
    &SOFTIRQ_ENTRY,
    &SOFTIRQ_EXIT,
    &DRIVER,
    &IP,
    &TRANSPORT,
    &SOCKET_ENQUEUED,
    &SOCKET_READ,
    &TRANSMIT_SEND,
    &TRANSMIT_QUEUE,
    &TRANSMIT_START,
    &TRANSMIT_END,
    &SOCKET_READER,
    &SOCKET_CREATOR,
    &CGROUP_CHANGE,
];
