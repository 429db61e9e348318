//! Compares received segments and bytes with TCP's own counts.

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
        tcp::{BYTES_SENT, SEGMENTS_IN, information},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
};

const SEGMENTS: &str = "undercurrent.network.receive.segments";
const RECEIVED: &str = "undercurrent.network.receive.io";
/// The size of TCP's header, without and with all options.
const HEADER: [f64; 2] = [20.0, 60.0];
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
        let counted = |ends: [&TcpStream; 2]| {
            [SEGMENTS_IN, BYTES_SENT].map(|of| ends.map(|end| f64::from(information(end, of))).iter().sum::<f64>())
        };
        let (from, before) = (counted([&sender, &receiver]), sidecar.snapshot());
        thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&vec![0x55; BYTES]).unwrap());
            receiver.read_exact(&mut vec![0; BYTES]).unwrap();
        });
        wire.settled();
        let (to, after) = (counted([&sender, &receiver]), sidecar.snapshot());
        let attributes = [("network.transport", "tcp"), ("network.type", version.name())];
        let [seen, bytes] =
            [SEGMENTS, RECEIVED].map(|metric| after.total(metric, &attributes) - before.total(metric, &attributes));
        let packets = packets(&after) - packets(&before);
        eprintln!("{}: {seen} segments in {packets} packets", version.name());
        assert!(seen > 2.0 * packets, "hardly any packet has several segments");
        record(SEGMENTS, seen, exactly(to[0] - from[0]));
        let [least, most] = HEADER.map(|header| to[1] - from[1] + header * packets);
        record(RECEIVED, bytes, least..=most);
    }
}
