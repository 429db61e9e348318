//! Members and functions of the fixtures' kernels. The expected offsets come from `pahole` on the full BTF.

use super::{
    super::{Extent, Kind},
    FUNCTIONS, KERNELS, TRACEPOINTS, on_every_kernel, parse,
};

/// Returns the extent of a member on each fixture's kernel.
fn extents(name: &str, path: &str) -> [Option<Extent>; KERNELS.len()] {
    KERNELS.each_ref().map(|kernel| parse(kernel.raw).member(name, path).ok().map(|member| member.extent))
}

const fn bytes(offset: u32, size: u64) -> Option<Extent> {
    Some(Extent::Bytes { offset, size })
}

const fn bits(byte: u64, bit: u64, width: u32) -> Option<Extent> {
    Some(Extent::Bits { offset: byte * 8 + bit, width })
}

#[test]
fn packet_members_have_the_offsets_of_each_kernel() {
    assert_eq!(extents("sk_buff", "tstamp"), [bytes(32, 8); 5]);
    assert_eq!(extents("sk_buff", "skb_mstamp_ns"), [bytes(32, 8); 5], "in one union with tstamp");
    assert_eq!(extents("sk_buff", "mono_delivery_time"), [None, bits(130, 5, 1), None, None, None]);
    let kind = bits(129, 0, 2);
    assert_eq!(extents("sk_buff", "tstamp_type"), [None, None, kind, kind, kind]);
    assert_eq!(extents("sk_buff", "protocol"), [176, 180, 180, 176, 180].map(|offset| bytes(offset, 2)));
    assert_eq!(extents("sk_buff", "network_header"), [180, 184, 184, 180, 184].map(|offset| bytes(offset, 2)));
    assert_eq!(extents("sk_buff", "head"), [192, 200, 200, 192, 200].map(|offset| bytes(offset, 8)));
}

#[test]
fn socket_members_have_the_offsets_of_each_kernel() {
    assert_eq!(extents("sock", "__sk_common.skc_family"), [bytes(16, 2); 5]);
    assert_eq!(extents("sock", "__sk_common.skc_v6_daddr"), [bytes(56, 16); 5]);
}

#[test]
fn type_of_read_timestamps_depends_on_the_kernel() {
    // 7.2 replaced three `struct timespec64` by three `ktime_t`.
    let [old @ .., new] = extents("scm_timestamping_internal", "ts");
    assert_eq!((old, new), ([bytes(0, 48); 4], bytes(0, 24)));
    let [old @ .., new] = extents("scm_timestamping_internal", "ts.0");
    assert_eq!((old, new), ([bytes(0, 16); 4], bytes(0, 8)));
    let [old @ .., new] = extents("scm_timestamping_internal", "ts.2.tv_nsec");
    assert_eq!((old, new), ([bytes(40, 8); 4], None));
}

#[test]
fn hooks_have_the_parameters_that_the_programs_rely_on() {
    on_every_kernel(|release, raw| {
        let btf = parse(raw);
        let points_to = |name: &str| -> Vec<Option<&str>> {
            let function = btf.function(name).unwrap_or_else(|| panic!("no {name} on {release}"));
            assert_eq!(Some(function.id), btf.find(name, Kind::Function));
            function.parameters.iter().map(|parameter| parameter.points_to).collect()
        };
        for name in ["tcp_v4_rcv", "tcp_v6_rcv", "udp_rcv", "udpv6_rcv"] {
            assert_eq!(points_to(name), [Some("sk_buff")], "{name} on {release}");
        }
        assert_eq!(points_to("ip_rcv_core"), [Some("sk_buff"), Some("net")], "{release}");
        assert_eq!(
            points_to("tcp_recv_timestamp"),
            [Some("msghdr"), Some("sock"), Some("scm_timestamping_internal")],
            "{release}"
        );
        assert!(FUNCTIONS.iter().all(|name| btf.function(name).is_some()), "{release}");
    });
}

#[test]
fn tracepoint_parameters_exclude_the_context() {
    on_every_kernel(|release, raw| {
        let btf = parse(raw);
        let points_to = |name: &str| -> Vec<Option<&str>> {
            let found = btf.tracepoint(name).unwrap_or_else(|| panic!("no {name} on {release}"));
            found.parameters.iter().map(|parameter| parameter.points_to).collect()
        };
        assert_eq!(points_to("softirq_entry"), [None], "{release}");
        assert_eq!(points_to("skb_copy_datagram_iovec"), [Some("sk_buff"), None], "{release}");
        assert!(TRACEPOINTS.iter().all(|name| btf.tracepoint(name).is_some()), "{release}");
    });
}
