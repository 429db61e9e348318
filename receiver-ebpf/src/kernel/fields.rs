//! Every kernel field that a program reads.

use super::field::{BitField, Field, fields};

fields! {
    /// The receive timestamp, nanoseconds of the wall clock; a departure time where `tstamp_type` says so.
    SKB_TSTAMP: Field<u64> = "sk_buff.tstamp";
    /// Not zero where the stamp is a departure time: the clock it is of (6.11 and later), or whether it is monotonic
    /// (5.18 to 6.10).
    SKB_TSTAMP_TYPE: BitField = "sk_buff.tstamp_type..sk_buff.mono_delivery_time";
    /// The Ethertype, in network order.
    SKB_PROTOCOL: Field<u16> = "sk_buff.protocol";
    /// The socket that owns the packet, where one does: of received packets, TCP's.
    SKB_SK: Field<u64> = "sk_buff.sk";
    /// What the layer that has the packet keeps with it.
    SKB_CONTROL: Field<u64> = "sk_buff.cb";
    /// Of what TCP keeps with a packet to send: how many segments it makes.
    TCP_SEGMENTS: Field<u16> = "tcp_skb_cb.tcp_gso_segs";
    /// The sequence number after its last byte.
    TCP_END: Field<u32> = "tcp_skb_cb.end_seq";
    /// How many segments a connection got out of order (5.5 and later).
    TCP_OUT_OF_ORDER: Field<u32> = "tcp_sock.rcv_ooopack";
    /// Those that wait for a missing one, in a tree: its root, null where there are none.
    TCP_OUT_OF_ORDER_QUEUE: Field<u64> = "tcp_sock.out_of_order_queue.rb_node";
    /// The last of these; where there are none, the last that was there.
    TCP_OUT_OF_ORDER_LAST: Field<u64> = "tcp_sock.ooo_last_skb";
    /// The sequence number that comes next in order.
    TCP_RECEIVE_NEXT: Field<u32> = "tcp_sock.rcv_nxt";
    /// The sequence number up to which the application has read.
    TCP_COPIED: Field<u32> = "tcp_sock.copied_seq";
    /// The buffer's first byte.
    SKB_HEAD: Field<u64> = "sk_buff.head";
    /// The buffer's end, as a distance from `head`.
    SKB_END: Field<u32> = "sk_buff.end";
    /// Of what the buffer's packets share: the card's receive timestamp, nanoseconds of its clock; zero where it gave none.
    SHARED_STAMP: Field<u64> = "skb_shared_info.hwtstamps.hwtstamp";
    /// What is said of timestamps.
    SHARED_FLAGS: Field<u8> = "skb_shared_info.tx_flags";
    /// The IP header's distance from `head`.
    SKB_NETWORK_HEADER: Field<u16> = "sk_buff.network_header";
    /// The transport header's distance from `head`.
    SKB_TRANSPORT_HEADER: Field<u16> = "sk_buff.transport_header";
    /// Bytes of the packet from where its data begins.
    SKB_LENGTH: Field<u32> = "sk_buff.len";
    /// Those of them that are in pages.
    SKB_PAGED_LENGTH: Field<u32> = "sk_buff.data_len";
    /// The index of the interface that the packet came in by.
    SKB_INTERFACE: Field<u32> = "sk_buff.skb_iif";
    /// The socket's address family.
    SOCK_FAMILY: Field<u16> = "sock.__sk_common.skc_family";
    /// The socket's state; small sockets that stand for half-open and closed connections have theirs there too.
    SOCK_STATE: Field<u8> = "sock.__sk_common.skc_state";
    /// What kind of socket it is, as `socket(2)` has it.
    SOCK_TYPE: Field<u16> = "sock.sk_type";
    /// The socket's transport protocol.
    SOCK_PROTOCOL: Field<u16> = "sock.sk_protocol";
    /// The local port.
    SOCK_PORT: Field<u16> = "sock.__sk_common.skc_num";
    /// The socket's network namespace.
    SOCK_NET: Field<u64> = "sock.__sk_common.skc_net.net";
    /// The receive queue, a ring of which the socket has the beginning.
    SOCK_RECEIVE_QUEUE: Field<u64> = "sock.sk_receive_queue";
    /// The last packet there; where there is none, the beginning itself.
    SOCK_LAST: Field<u64> = "sock.sk_receive_queue.prev";
    /// Packets in the receive queue.
    SOCK_QUEUE: Field<u32> = "sock.sk_receive_queue.qlen";
    /// Packets that a reader of UDP has taken over from there.
    UDP_READER_QUEUE: Field<u32> = "udp_sock.reader_queue.qlen";
    /// The index of the interface that a connection's packets come in by (5.16 and later).
    SOCK_INTERFACE: Field<u32> = "sock.sk_rx_dst_ifindex";
    /// The peer's IPv6 address, which is IPv4-mapped for IPv4 traffic of a dual-stack socket.
    SOCK_V6_DADDR: Field<[u64; 2]> = "sock.__sk_common.skc_v6_daddr";
    /// Eight times the smoothed round-trip time of a connection in microseconds; zero where it has none yet.
    TCP_SRTT: Field<u32> = "tcp_sock.srtt_us";
    /// The timestamp of the data that a read returned, up to 7.1: its seconds.
    SCM_SECONDS: Field<u64> = "scm_timestamping_internal.ts.0.tv_sec";
    /// The nanoseconds within that second.
    SCM_NANOSECONDS: Field<u64> = "scm_timestamping_internal.ts.0.tv_nsec";
    /// The same timestamp from 7.2 on: nanoseconds, all of it.
    SCM_KTIME: Field<u64> = "scm_timestamping_internal.ts.0";
    /// The socket's cookie, zero where nobody has asked for it yet.
    SOCK_COOKIE: Field<u64> = "sock.__sk_common.skc_cookie";
    /// The `sock` of a `socket`.
    SOCKET_SOCK: Field<u64> = "socket.sk";
    /// What programs keep with the socket, all of it.
    SOCK_STORAGE: Field<u64> = "sock.sk_bpf_storage";
    /// The cgroup v2 of the task that made the socket (5.15 and later: before, a word that is no pointer at times).
    SOCK_CGROUP: Field<u64> = "sock.sk_cgrp_data.cgroup";
    /// The cgroup's directory.
    CGROUP_NODE: Field<u64> = "cgroup.kn";
    /// The directory's id.
    NODE_ID: Field<u64> = "kernfs_node.id";
    /// The hierarchy that the cgroup is in.
    CGROUP_ROOT: Field<u64> = "cgroup.root";
    /// The hierarchy's number, as in `/proc/cgroups`.
    ROOT_HIERARCHY: Field<i32> = "cgroup_root.hierarchy_id";
    /// Every cgroup that the task is in.
    TASK_CSS_SET: Field<u64> = "task_struct.cgroups";
    /// That of the cpu controller.
    CSS_SET_CPU: Field<u64> = "css_set.subsys.cpu_cgrp_id";
    /// The cgroup itself.
    CSS_CGROUP: Field<u64> = "cgroup_subsys_state.cgroup";
    /// The device that the packet came through.
    SKB_DEVICE: Field<u64> = "sk_buff.dev";
    /// What the packet takes of its socket's buffer.
    SKB_TRUESIZE: Field<u32> = "sk_buff.truesize";
    /// The device's outermost qdisc.
    DEVICE_QDISC: Field<u64> = "net_device.qdisc";
    /// The device that it is to the bus; none of what is made of software.
    DEVICE_PARENT: Field<u64> = "net_device.dev.parent";
    /// The qdisc's way in.
    QDISC_ENQUEUE: Field<u64> = "Qdisc.enqueue";
    /// What kind of qdisc it is.
    QDISC_FLAGS: Field<u32> = "Qdisc.flags";
    /// The device's network namespace.
    DEVICE_NET: Field<u64> = "net_device.nd_net.net";
    /// The device's index in its namespace.
    DEVICE_INDEX: Field<u32> = "net_device.ifindex";
    /// The device's name, with zeros after it.
    DEVICE_NAME: Field<[u64; 2]> = "net_device.name";
    /// The namespace's inode.
    NET_INODE: Field<u32> = "net.ns.inum";
}
