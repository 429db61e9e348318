//! Every kernel struct and field that a program reads.

use super::field::{Address, BitField, Embedded, Field, fields};

/// Declares marker types for structs of the kernel.
macro_rules! structs {
    ($($name:ident = $kernel:literal;)+) => {$(
        #[doc = concat!("`struct ", $kernel, "`.")]
        pub struct $name;
    )+};
}

structs! {
    Cgroup = "cgroup";
    CgroupRoot = "cgroup_root";
    CgroupSubsysState = "cgroup_subsys_state";
    CssSet = "css_set";
    IoVec = "iovec";
    IovIter = "iov_iter";
    KernfsNode = "kernfs_node";
    MsgHdr = "msghdr";
    Net = "net";
    NetDevice = "net_device";
    PerfEvent = "perf_event";
    PtRegs = "pt_regs";
    Qdisc = "Qdisc";
    SchedEntity = "sched_entity";
    ScmTimestamping = "scm_timestamping_internal";
    SkBuff = "sk_buff";
    SkBuffHead = "sk_buff_head";
    SkbSharedInfo = "skb_shared_info";
    Sock = "sock";
    Socket = "socket";
    Task = "task_struct";
    TaskGroup = "task_group";
    TcpSkbCb = "tcp_skb_cb";
    TcpSock = "tcp_sock";
    UdpSock = "udp_sock";
}

fields! {
    /// Receive timestamp in nanoseconds of the wall clock; a departure time if `tstamp_type` is set.
    SKB_TSTAMP: Field<SkBuff, u64> = "sk_buff.tstamp";
    /// Non-zero if `tstamp` is a departure time: the clock of that time (6.11 and later), or true for the monotonic clock
    /// (5.18 to 6.10).
    SKB_TSTAMP_TYPE: BitField<SkBuff> = "sk_buff.tstamp_type..sk_buff.mono_delivery_time";
    /// Hash of the packet's flow; zero if unknown.
    SKB_HASH: Field<SkBuff, u32> = "sk_buff.hash";
    /// Ethertype, in network order.
    SKB_PROTOCOL: Field<SkBuff, u16> = "sk_buff.protocol";
    /// Socket that owns the packet, or null. A received packet has one only if it is TCP's.
    SKB_SK: Field<SkBuff, Address<Sock>> = "sk_buff.sk";
    /// Data that UDP stores in the place of the device while a packet is in a receive queue (`udp_set_dev_scratch`, 4.12 and
    /// later).
    SKB_DEV_SCRATCH: Field<SkBuff, u64> = "sk_buff.dev_scratch";
    /// Control buffer of the layer that currently handles the packet; here TCP.
    SKB_CB: Field<SkBuff, Embedded<TcpSkbCb>> = "sk_buff.cb";
    /// Segments that a packet to send is divided into.
    TCP_SEGMENTS: Field<TcpSkbCb, u16> = "tcp_skb_cb.tcp_gso_segs";
    /// Sequence number of the first byte.
    TCP_START: Field<TcpSkbCb, u32> = "tcp_skb_cb.seq";
    /// What TCP knows of the segment (`TCPCB_*`).
    TCP_SACKED: Field<TcpSkbCb, u8> = "tcp_skb_cb.sacked";
    /// Sequence number after the last byte.
    TCP_END: Field<TcpSkbCb, u32> = "tcp_skb_cb.end_seq";
    /// Segments that the connection received out of order (5.5 and later).
    TCP_OUT_OF_ORDER: Field<TcpSock, u32> = "tcp_sock.rcv_ooopack";
    /// Root of the tree of segments that wait for a missing segment; null if the tree is empty.
    TCP_OUT_OF_ORDER_QUEUE: Field<TcpSock, u64> = "tcp_sock.out_of_order_queue.rb_node";
    /// Last segment of that tree; if the tree is empty, the segment that was the last.
    TCP_OUT_OF_ORDER_LAST: Field<TcpSock, Address<SkBuff>> = "tcp_sock.ooo_last_skb";
    /// Next packet of its queue; the queue itself for the last packet.
    SKB_NEXT: Field<SkBuff, Address<SkBuff>> = "sk_buff.next";
    /// First packet of the receive queue; the queue itself if it is empty.
    SOCK_RCVQ_HEAD: Field<Sock, Address<SkBuff>> = "sock.sk_receive_queue.next";
    /// Next expected sequence number.
    TCP_RECEIVE_NEXT: Field<TcpSock, u32> = "tcp_sock.rcv_nxt";
    /// Sequence number after the last byte that the application has read.
    TCP_COPIED: Field<TcpSock, u32> = "tcp_sock.copied_seq";
    /// Next sequence number to send.
    TCP_SEND_NEXT: Field<TcpSock, u32> = "tcp_sock.snd_nxt";
    /// Sequence number of the first byte that the other end has not acknowledged.
    TCP_UNACKNOWLEDGED: Field<TcpSock, u32> = "tcp_sock.snd_una";
    /// Sequence number after the last byte that the application has written.
    TCP_WRITTEN: Field<TcpSock, u32> = "tcp_sock.write_seq";
    /// Departure time of the last segment, nanoseconds of the monotonic clock.
    TCP_LAST_DEPARTURE: Field<TcpSock, u64> = "tcp_sock.tcp_wstamp_ns";
    /// Segments that the connection sent again.
    TCP_RETRANSMITS: Field<TcpSock, u32> = "tcp_sock.total_retrans";
    /// Bytes that the connection received.
    TCP_BYTES_RECEIVED: Field<TcpSock, u64> = "tcp_sock.bytes_received";
    /// Root of the tree of segments that were sent and not acknowledged, by sequence number; null if the tree is empty.
    SOCK_UNACKNOWLEDGED: Field<Sock, u64> = "sock.tcp_rtx_queue.rb_node";
    /// Segments before the segment in its tree. The node of the tree is at the start of `sk_buff`.
    SKB_LEFT: Field<SkBuff, u64> = "sk_buff.rbnode.rb_left";
    /// Segments after it.
    SKB_RIGHT: Field<SkBuff, u64> = "sk_buff.rbnode.rb_right";
    /// Directions that the application closed: 1 to receive, 2 to send.
    SOCK_SHUTDOWN: Field<Sock, u8> = "sock.sk_shutdown";
    /// Error that the socket reports next (`errno`).
    SOCK_ERROR: Field<Sock, i32> = "sock.sk_err";
    /// Start of the buffer.
    SKB_HEAD: Field<SkBuff, u64> = "sk_buff.head";
    /// End of the buffer, in bytes from `head`. The shared info begins there.
    SKB_END: Field<SkBuff, u32> = "sk_buff.end";
    /// Receive timestamp of the NIC, nanoseconds of its clock; zero if the NIC set none.
    SHARED_HWTSTAMP: Field<SkbSharedInfo, u64> = "skb_shared_info.hwtstamps.hwtstamp";
    /// Segments that GRO combined in the packet, or that the sender on this host did not divide; zero for one segment.
    SHARED_SEGMENTS: Field<SkbSharedInfo, u16> = "skb_shared_info.gso_segs";
    /// Flags for timestamping.
    SHARED_TX_FLAGS: Field<SkbSharedInfo, u8> = "skb_shared_info.tx_flags";
    /// Start of the IP header, in bytes from `head`.
    SKB_NETWORK_HEADER: Field<SkBuff, u16> = "sk_buff.network_header";
    /// Start of the transport header, in bytes from `head`.
    SKB_TRANSPORT_HEADER: Field<SkBuff, u16> = "sk_buff.transport_header";
    /// Bytes of the packet from the start of its data.
    SKB_LENGTH: Field<SkBuff, u32> = "sk_buff.len";
    /// Bytes of the packet that are in pages.
    SKB_PAGED_LENGTH: Field<SkBuff, u32> = "sk_buff.data_len";
    /// Index of the interface that received the packet.
    SKB_INTERFACE: Field<SkBuff, u32> = "sk_buff.skb_iif";
    /// Address family of the socket.
    SOCK_FAMILY: Field<Sock, u16> = "sock.__sk_common.skc_family";
    /// State of the socket. Request sockets and time-wait sockets have this field too.
    SOCK_STATE: Field<Sock, u8> = "sock.__sk_common.skc_state";
    /// Socket type, as in `socket(2)`.
    SOCK_TYPE: Field<Sock, u16> = "sock.sk_type";
    /// Transport protocol.
    SOCK_PROTOCOL: Field<Sock, u16> = "sock.sk_protocol";
    /// Local IPv4 address, in network order.
    SOCK_RCV_SADDR: Field<Sock, u32> = "sock.__sk_common.skc_rcv_saddr";
    /// IPv4 address of the peer, in network order.
    SOCK_DADDR: Field<Sock, u32> = "sock.__sk_common.skc_daddr";
    /// Port of the peer, in network order.
    SOCK_DPORT: Field<Sock, u16> = "sock.__sk_common.skc_dport";
    /// Local IPv6 address.
    SOCK_V6_RCV_SADDR: Field<Sock, [u64; 2]> = "sock.__sk_common.skc_v6_rcv_saddr";
    /// Local port.
    SOCK_PORT: Field<Sock, u16> = "sock.__sk_common.skc_num";
    /// Network namespace of the socket.
    SOCK_NET: Field<Sock, Address<Net>> = "sock.__sk_common.skc_net.net";
    /// Connections that wait for `accept(2)`.
    SOCK_ACCEPT_QUEUE: Field<Sock, u32> = "sock.sk_ack_backlog";
    /// Most connections that wait for `accept(2)`.
    SOCK_ACCEPT_QUEUE_LIMIT: Field<Sock, u32> = "sock.sk_max_ack_backlog";
    /// Receive queue, a ring of packets.
    SOCK_RECEIVE_QUEUE: Field<Sock, Embedded<SkBuffHead>> = "sock.sk_receive_queue";
    /// Last packet of the receive queue; the queue's own address if it is empty.
    SOCK_RCVQ_TAIL: Field<Sock, Address<SkBuff>> = "sock.sk_receive_queue.prev";
    /// Bytes of memory that packets in the receive queue occupy.
    SOCK_RECEIVE_ALLOCATED: Field<Sock, i32> = "sock.sk_backlog.rmem_alloc.counter";
    /// Limit of this memory, in bytes.
    SOCK_RECEIVE_BUFFER: Field<Sock, i32> = "sock.sk_rcvbuf";
    /// Packets in the receive queue.
    SOCK_QUEUE: Field<Sock, u32> = "sock.sk_receive_queue.qlen";
    /// Packets that a reader of UDP has moved from the receive queue to the reader queue.
    UDP_READER_QUEUE: Field<UdpSock, u32> = "udp_sock.reader_queue.qlen";
    /// Index of the interface that a connection's packets arrive on (5.16 and later).
    SOCK_INTERFACE: Field<Sock, u32> = "sock.sk_rx_dst_ifindex";
    /// IPv6 address of the peer; IPv4-mapped for IPv4 traffic of a dual-stack socket.
    SOCK_V6_DADDR: Field<Sock, [u64; 2]> = "sock.__sk_common.skc_v6_daddr";
    /// Eight times the smoothed round-trip time in microseconds; zero before the first measurement.
    TCP_SRTT: Field<TcpSock, u32> = "tcp_sock.srtt_us";
    /// Timestamp of the data that a read returned, up to 7.1: seconds.
    SCM_SECONDS: Field<ScmTimestamping, u64> = "scm_timestamping_internal.ts.0.tv_sec";
    /// Nanoseconds within that second.
    SCM_NANOSECONDS: Field<ScmTimestamping, u64> = "scm_timestamping_internal.ts.0.tv_nsec";
    /// Timestamp of the data that a read returned, from 7.2 on: nanoseconds.
    SCM_KTIME: Field<ScmTimestamping, u64> = "scm_timestamping_internal.ts.0";
    /// Cookie of the socket; zero until a program or process first requests it.
    SOCK_COOKIE: Field<Sock, u64> = "sock.__sk_common.skc_cookie";
    /// The `sock` of a `socket`.
    SOCKET_SOCK: Field<Socket, Address<Sock>> = "socket.sk";
    /// All socket storage of BPF programs; null if there is none.
    SOCK_STORAGE: Field<Sock, u64> = "sock.sk_bpf_storage";
    /// Cgroup (v2) of the task that created the socket. Before 5.15 this word is not always a pointer.
    SOCK_CGROUP: Field<Sock, Address<Cgroup>> = "sock.sk_cgrp_data.cgroup";
    /// Directory of the cgroup.
    CGROUP_KN: Field<Cgroup, Address<KernfsNode>> = "cgroup.kn";
    /// Id of the directory.
    KERNFS_ID: Field<KernfsNode, u64> = "kernfs_node.id";
    /// Hierarchy of the cgroup.
    CGROUP_ROOT: Field<Cgroup, Address<CgroupRoot>> = "cgroup.root";
    /// Number of the hierarchy, as in `/proc/cgroups`.
    ROOT_HIERARCHY: Field<CgroupRoot, i32> = "cgroup_root.hierarchy_id";
    /// State of the cpu controller in the cgroup; null without the controller.
    CGROUP_CPU: Field<Cgroup, Address<CgroupSubsysState>> = "cgroup.subsys.cpu_cgrp_id";
    /// The cgroup's entity on each CPU, an array of pointers by CPU (CONFIG_FAIR_GROUP_SCHED, up to 6.18 at least; in memory of each CPU in 7.2).
    GROUP_ENTITIES: Field<TaskGroup, u64> = "task_group.se";
    /// Nanoseconds for which tasks of the entity ran.
    ENTITY_RUNTIME: Field<SchedEntity, u64> = "sched_entity.sum_exec_runtime";
    /// All cgroups of the task.
    TASK_CSS_SET: Field<Task, Address<CssSet>> = "task_struct.cgroups";
    /// State of the cpu controller.
    CSS_SET_CPU: Field<CssSet, Address<CgroupSubsysState>> = "css_set.subsys.cpu_cgrp_id";
    /// Cgroup of a controller's state.
    CSS_CGROUP: Field<CgroupSubsysState, Address<Cgroup>> = "cgroup_subsys_state.cgroup";
    /// Id of the task (a thread), in the first pid namespace.
    TASK_ID: Field<Task, u32> = "task_struct.pid";
    /// Id of the task's process, in the first pid namespace.
    TASK_TGID: Field<Task, u32> = "task_struct.tgid";
    /// First thread of the task's process.
    TASK_GROUP_LEADER: Field<Task, Address<Task>> = "task_struct.group_leader";
    /// Flags of the task (`PF_*`).
    TASK_FLAGS: Field<Task, u32> = "task_struct.flags";
    /// Name of the task.
    TASK_COMM: Field<Task, [u64; 2]> = "task_struct.comm";
    /// Device of the packet.
    SKB_DEVICE: Field<SkBuff, Address<NetDevice>> = "sk_buff.dev";
    /// Bytes that the packet is charged for in its socket's buffer.
    SKB_TRUESIZE: Field<SkBuff, u32> = "sk_buff.truesize";
    /// Root qdisc of the device.
    DEVICE_QDISC: Field<NetDevice, Address<Qdisc>> = "net_device.qdisc";
    /// Parent of the device on its bus; null for software devices.
    DEVICE_PARENT: Field<NetDevice, u64> = "net_device.dev.parent";
    /// Enqueue function of the qdisc.
    QDISC_ENQUEUE: Field<Qdisc, u64> = "Qdisc.enqueue";
    /// Flags of the qdisc (`TCQ_F_*`).
    QDISC_FLAGS: Field<Qdisc, u32> = "Qdisc.flags";
    /// Network namespace of the device.
    DEVICE_NET: Field<NetDevice, Address<Net>> = "net_device.nd_net.net";
    /// Index of the device in its namespace.
    DEVICE_INDEX: Field<NetDevice, u32> = "net_device.ifindex";
    /// Name of the device, padded with zeros.
    DEVICE_NAME: Field<NetDevice, [u64; 2]> = "net_device.name";
    /// Inode of the namespace.
    NET_INODE: Field<Net, u32> = "net.ns.inum";
    /// Destination of a read.
    MSG_ITER: Field<MsgHdr, Embedded<IovIter>> = "msghdr.msg_iter";
    /// Bytes that were written to the current buffer.
    ITER_OFFSET: Field<IovIter, u64> = "iov_iter.iov_offset";
    /// The buffer of the process (6.0 and later), or the kernel's list of buffers.
    ITER_BUFFER: Field<IovIter, u64> = "iov_iter.ubuf..iov_iter.iov";
    /// Address of a buffer.
    IOVEC_BASE: Field<IoVec, u64> = "iovec.iov_base";
    /// Expiry of the timer of a `cpu-clock` event, nanoseconds of the monotonic clock. The kernel sets the next one after the program.
    EVENT_DUE: Field<PerfEvent, u64> = "perf_event.hw.hrtimer._softexpires";
    /// Stack pointer.
    REGS_SP: Field<PtRegs, u64> = "pt_regs.sp";
    /// Number of the system call on x86; -1 if there is none.
    REGS_CALL_X86: Field<PtRegs, u64> = "pt_regs.orig_ax";
    /// Number of the system call on arm64; -1 if there is none.
    REGS_CALL_ARM64: Field<PtRegs, i32> = "pt_regs.syscallno";
    /// State of the task on x86, with `TS_COMPAT` during a system call by another interface.
    TASK_STATUS: Field<Task, u32> = "task_struct.thread_info.status";
    /// Lowest address of the task's stack in the kernel.
    TASK_STACK: Field<Task, u64> = "task_struct.stack";
}
