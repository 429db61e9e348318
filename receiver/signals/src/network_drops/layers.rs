//! The layer of a packet drop, derived from the kernel's drop reason.

use crate::kernel::drops::UNNAMED;

/// Every layer, in receive order.
pub const LAYERS: &[&str] =
    &["device", "xdp", "tc", "qdisc", "netfilter", "ip", "neighbour", "transport", "socket", "other"];

/// Drop reasons of kernels 5.17 to 7.2 by name or prefix. The first match determines the layer. Reasons without a match
/// can occur at any layer.
const TABLE: &[(&str, &[&str])] = &[
    ("socket", &["socket_", "proto_mem", "queue_purge", "packet_sock_error", "unix_", "tcp_listen_overflow"]),
    ("socket", &["pfmemalloc", "security_hook", "bpf_cgroup_egress"]),
    ("transport", &["tcp_", "udp_", "no_socket", "psp_"]),
    ("qdisc", &["qdisc", "fq_", "cake_", "dualpi2_"]),
    ("tc", &["tc_"]),
    ("xdp", &["xdp"]),
    ("netfilter", &["netfilter_"]),
    ("neighbour", &["neigh_"]),
    (
        "device",
        &["ip_tunnel_", "tunnel_", "vxlan_", "bridge_", "macvlan_", "ipvlan_", "mac_", "local_mac", "mac80211_"],
    ),
    ("device", &["dev_", "tap_", "full_ring", "hdr_trunc", "no_tx_target", "openvswitch", "can"]),
    ("device", &["skb_csum", "skb_gso_seg", "skb_bad_gso", "skb_ucopy_fault", "recursion_limit"]),
    ("device", &["cpu_backlog", "unhandled_proto", "arp_"]),
    ("ip", &["ip_", "ipv6", "icmp_", "frag_", "dup_frag", "otherhost", "unicast_in_l2_multicast"]),
    ("ip", &["xfrm_", "invalid_proto", "pkt_too_big"]),
];

/// Returns the layer of a drop reason.
pub fn layer(reason: &str) -> &'static str {
    let fits = |(_, names): &&(&str, &[&str])| names.iter().any(|name| reason.starts_with(name));
    TABLE.iter().find(fits).map_or(UNNAMED, |(layer, _)| layer)
}

#[cfg(test)]
#[path = "../../../tests/support/types.rs"]
mod types;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use undercurrent_ebpf::abi::drops::COUNTS;
    use undercurrent_loader::{btf::Btf, drops};

    use super::*;

    #[test]
    fn every_reason_of_every_kernel_has_a_layer() {
        let mut reasons = BTreeSet::new();
        for types::Kernel { release, raw } in &types::KERNELS {
            let of = drops::reasons(&Btf::parse(raw).expect(release));
            reasons.extend((0..COUNTS).filter_map(|place| of.at(place).map(str::to_owned)));
        }
        assert!(reasons.len() > 130, "only {} reasons", reasons.len());
        assert!(reasons.iter().all(|reason| LAYERS.contains(&layer(reason))));
        let table: Vec<String> = LAYERS
            .iter()
            .map(|of| {
                let named: Vec<&str> = reasons.iter().map(String::as_str).filter(|name| layer(name) == *of).collect();
                format!("{of}: {}", named.join(" "))
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"));
    }
}
