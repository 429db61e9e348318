//! The functions that different traffic takes CPU time in.

use std::{process::Command, time::Duration};

use super::{
    super::support::{
        line::Line,
        load::Load,
        namespace::Namespace,
        sidecar::Sidecar,
        surroundings::{alone, patience, security_filters_output, skip, virtual_machine, wait_for},
        wire::{Version, Wire},
    },
    SAMPLES, Source, flood, growth, start, start_with,
};

/// Functions that only some traffic reaches.
const SPECIFIC: [&str; 12] = [
    "bridge",
    "conntrack",
    "forward",
    "netfilter_prerouting",
    "netfilter_forward",
    "netfilter_input",
    "netfilter_output",
    "tc_egress",
    "tcp_receive",
    "tcp_transmit",
    "udp_receive",
    "udp_send",
];
/// The least samples of a function that the traffic reaches.
const LEAST: f64 = 5.0;
/// Returns the share of samples that programs outside of the test, or the late timers of an emulated CPU, may cause.
fn noise() -> f64 {
    if virtual_machine().is_some() { 0.15 } else { 0.03 }
}

/// An event, and a function in it.
pub type Function = (&'static str, &'static str);

pub const UDP_RECEIVE: Function = ("receive_softirq", "udp_receive");
pub const UDP_SEND: Function = ("socket_send", "udp_send");
/// The functions that the netfilter hooks of security modules are in.
const SECURITY: [Function; 2] = [("socket_send", "netfilter_output"), ("receive_softirq", "netfilter_forward")];
const TCP_RECEIVE: Function = ("receive_softirq", "tcp_receive");
const TCP_TRANSMIT: Function = ("socket_send", "tcp_transmit");

/// Runs traffic until each of these functions has samples. Expects no other of the specific functions, except those that
/// `may` have samples too.
pub fn expect(sidecar: &Sidecar, functions: &[Function], may: &[Function], version: Version, traffic: impl Fn()) {
    let before = sidecar.snapshot();
    let of = |line: &Line, (event, function): Function| {
        let attributes = [("undercurrent.network.event", event), ("undercurrent.network.function", function)];
        growth(&before, line, SAMPLES, &attributes)
    };
    let after = wait_for(&format!("samples of {functions:?}"), patience(Duration::from_secs(20)), || {
        traffic();
        let line = sidecar.snapshot();
        functions.iter().all(|function| of(&line, *function) >= LEAST).then_some(line)
    });
    let all = growth(&before, &after, SAMPLES, &[]);
    for function in functions {
        eprintln!("{version:?} {function:?}: {} of {all} samples", of(&after, *function));
    }
    let none = |name: &str, attribute| {
        let samples = growth(&before, &after, SAMPLES, &[attribute]);
        assert!(samples <= (all * noise()).max(2.0), "{name}: {samples} of {all} samples, without traffic through it");
    };
    let filtered: &[Function] = if security_filters_output() { &SECURITY } else { &[] };
    let is_expected = |name: &&str| functions.iter().chain(may).chain(filtered).any(|(_, function)| function == name);
    for name in SPECIFIC.into_iter().filter(|name| !is_expected(name)) {
        none(name, ("undercurrent.network.function", name));
    }
    for other in Version::ALL.into_iter().filter(|other| *other != version) {
        none(other.name(), ("network.type", other.name()));
    }
}

fn datagrams(wire: &Wire) -> impl Fn() {
    move || flood(wire, Duration::from_millis(300))
}

#[test]
fn datagrams_are_in_the_functions_of_udp() {
    let Some(_alone) = alone("functions of UDP") else { return };
    send_datagrams(Source::CpuClock);
}

#[test]
fn samples_by_a_counter_are_in_the_functions_of_udp() {
    let Some(_alone) = alone("functions of UDP by a counter") else { return };
    send_datagrams(Source::Cycles);
}

fn send_datagrams(source: Source) {
    for version in Version::ALL {
        // A sidecar for each version: a counter's samples wait until their CPU's clock rate is known, which needs busy time.
        let sidecar = start_with(source);
        let wire = Wire::veth(version);
        expect(&sidecar, &[UDP_RECEIVE, UDP_SEND], &[], version, datagrams(&wire));
    }
}

#[test]
fn segments_are_in_the_functions_of_tcp() {
    let Some(_alone) = alone("functions of TCP") else { return };
    let sidecar = start();
    for version in Version::ALL {
        let wire = Wire::veth(version);
        let load = Load::stream(&wire, patience(Duration::from_secs(60)));
        expect(&sidecar, &[TCP_RECEIVE, TCP_TRANSMIT, ("socket_receive", "copy")], &[], version, || {});
        load.stop();
    }
}

#[test]
fn frames_between_ports_are_in_the_functions_of_the_bridge() {
    let Some(_alone) = alone("functions of a bridge") else { return };
    if !Namespace::new().run(|| Command::new("ip").args(["link", "add", "type", "bridge"]).status().unwrap()).success()
    {
        return skip("functions of a bridge: this kernel has no bridges");
    }
    let sidecar = start();
    for version in Version::ALL {
        let wire = Wire::bridged(version);
        expect(&sidecar, &[("receive_softirq", "bridge")], &[UDP_RECEIVE, UDP_SEND], version, datagrams(&wire));
    }
}

#[test]
fn packets_to_other_hosts_are_in_the_functions_of_forwarding() {
    let Some(_alone) = alone("functions of forwarding") else { return };
    let sidecar = start();
    for version in Version::ALL {
        let wire = Wire::routed(version);
        expect(&sidecar, &[("receive_softirq", "forward")], &[UDP_RECEIVE, UDP_SEND], version, datagrams(&wire));
    }
}

/// Returns a rule set with many comparisons at one hook.
fn comparisons(hook: &str) -> String {
    let rule = "ip daddr 192.0.2.1 drop;".repeat(400);
    format!("table ip test {{ chain {hook} {{ type filter hook {hook} priority 0; {rule} }}; }}")
}

/// A rule set that tracks connections.
const TRACKING: &str =
    "table ip test { chain prerouting { type filter hook prerouting priority 0; ct state new counter accept; }; }";

/// Runs datagrams through a rule set at one end of a wire, and expects a function.
fn through(sidecar: &Sidecar, rules: &str, end: usize, function: Function, may: &[Function]) {
    let wire = Wire::veth(Version::Ipv4);
    let namespace = [&wire.left, &wire.right][end];
    if !namespace.run(|| Command::new("nft").arg(rules).status().unwrap()).success() {
        return skip(&format!("{}: this kernel has no nftables", function.1));
    }
    let may = [may, &[UDP_RECEIVE, UDP_SEND]].concat();
    expect(sidecar, &[function], &may, Version::Ipv4, datagrams(&wire));
}

#[test]
fn rules_are_in_the_functions_of_netfilter() {
    let Some(_alone) = alone("functions of netfilter") else { return };
    if Command::new("nft").arg("--version").output().is_err() {
        return skip("functions of netfilter: nft is not installed");
    }
    let sidecar = start();
    through(&sidecar, &comparisons("prerouting"), 1, ("receive_softirq", "netfilter_prerouting"), &[]);
    through(&sidecar, &comparisons("input"), 1, ("receive_softirq", "netfilter_input"), &[]);
    through(&sidecar, &comparisons("output"), 0, ("socket_send", "netfilter_output"), &[]);
    let prerouting = ("receive_softirq", "netfilter_prerouting");
    through(&sidecar, TRACKING, 1, ("receive_softirq", "conntrack"), &[prerouting]);
}
