//! Tests that two sidecars on one machine do not disturb each other.

use super::{
    latency::{Agreement, assert_agrees, seen, served_by},
    support::{
        counters::Received,
        sidecar::Sidecar,
        surroundings::{alone, often, virtual_machine},
        talk::Talk,
        wire::{Version, Wire},
    },
};

#[test]
fn two_at_once_see_the_same_packets() {
    let Some(_alone) = alone("two instances") else { return };
    let wire = Wire::veth(Version::Ipv4);
    let others = Received::by_processes();
    let sidecars = [Sidecar::start(often()), Sidecar::start(often())];
    let before = sidecars.each_ref().map(Sidecar::snapshot);
    let mut talk = Talk::open(&wire);
    let messages = if virtual_machine().is_some() { 300 } else { 3000 };
    talk.tcp(messages, 100);
    talk.udp(messages, 100);
    let counted = wire.settled();
    let after = sidecars.each_ref().map(Sidecar::snapshot);
    let others = Received::by_processes() - others;
    assert_eq!(served_by(&after[0], "transport"), served_by(&after[1], "transport"), "both attach by the same");
    for (before, after) in before.iter().zip(&after) {
        let of = |transport| {
            [after, before]
                .map(|line| seen(line, "transport", Some(transport), Version::Ipv4))
                .into_iter()
                .reduce(|a, b| a - b)
        };
        assert_agrees("tcp", of("tcp").unwrap(), counted.tcp, others.tcp, Agreement::Percent);
        assert_agrees(
            "udp",
            of("udp").unwrap(),
            counted.udp_of(Version::Ipv4),
            others.udp_of(Version::Ipv4),
            Agreement::Exact,
        );
    }
    for sidecar in sidecars {
        sidecar.stop();
    }
}
