//! Compares received segments with TCP's own count.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use super::{
    latency::{DURATION, served_by},
    support::{
        line::{Line, Point},
        sidecar::Sidecar,
        surroundings::{alone, often, skip},
        tcp::{SEGMENTS_IN, information},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
};

const SEGMENTS: &str = "undercurrent.network.receive.segments";
/// Many segments per packet: the devices of the wire do not divide what a sender combined.
const BYTES: usize = 4 << 20;

/// Returns the packets at the layer `transport`.
fn packets(line: &Line) -> f64 {
    let attributes = [("undercurrent.network.layer", "transport"), ("network.transport", "tcp")];
    line.find(DURATION, &attributes).map(Point::amount).sum()
}

#[test]
fn segments_are_those_that_tcp_counts() {
    let Some(_alone) = alone("segments") else { return };
    let sidecar = Sidecar::start(often());
    if served_by(&sidecar.snapshot(), "transport").is_none() {
        return skip("segments: the layer `transport` is not served");
    }
    for version in Version::ALL {
        let wire = Wire::best(version);
        let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
        let to = listener.local_addr().unwrap();
        let mut sender = wire.left.run(|| TcpStream::connect(to).unwrap());
        let (mut receiver, _) = listener.accept().unwrap();
        let counted =
            |ends: [&TcpStream; 2]| ends.map(|end| f64::from(information(end, SEGMENTS_IN))).iter().sum::<f64>();
        let (from, before) = (counted([&sender, &receiver]), sidecar.snapshot());
        thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&vec![0x55; BYTES]).unwrap());
            receiver.read_exact(&mut vec![0; BYTES]).unwrap();
        });
        wire.settled();
        let (to, after) = (counted([&sender, &receiver]), sidecar.snapshot());
        let attributes = [("network.transport", "tcp"), ("network.type", version.name())];
        let seen = after.total(SEGMENTS, &attributes) - before.total(SEGMENTS, &attributes);
        let packets = packets(&after) - packets(&before);
        eprintln!("{}: {seen} segments in {packets} packets", version.name());
        assert!(seen > 2.0 * packets, "hardly any packet has several segments");
        record(SEGMENTS, seen, exactly(to - from));
    }
}
