//! Tests how peeks and partial reads count at `socket_read`.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
};

use super::{
    latency::{DURATION, arrivals_served_by, on_functions},
    support::{
        line::Line,
        sidecar::Sidecar,
        surroundings::alone,
        wire::{Version, Wire},
    },
    waits::keeps_waits,
};

const WAIT: &str = "undercurrent.network.receive.wait.duration";
/// One piece over loopback, and in pages, so that the tracepoint sees datagrams too.
const SIZE: usize = 24_000;
const PEEKS: usize = 3;
const PARTS: usize = 4;

/// Returns the measured reads and waits.
fn counts(line: &Line, transport: &str) -> [f64; 2] {
    let read = [("undercurrent.network.layer", "socket_read"), ("network.transport", transport)];
    [line.total(DURATION, &read), line.total(WAIT, &read[1..])]
}

fn between(sidecar: &Sidecar, transport: &str, read: impl FnOnce()) -> [f64; 2] {
    let before = counts(&sidecar.snapshot(), transport);
    read();
    let after = counts(&sidecar.snapshot(), transport);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn what_is_looked_at_first_or_read_in_parts_counts_as_documented() {
    let Some(_alone) = alone("peeks and parts") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
    let mut client = wire.left.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let mut server = listener.accept().unwrap().0;
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let ports = [server.local_addr(), right.local_addr()].map(|address| address.unwrap().port());
    let sidecar = Sidecar::configured(&format!("packets: {{filter: {{ports: {ports:?}}}}}\n"));
    let functions = on_functions(&sidecar.snapshot(), "socket_read");
    let waits = arrivals_served_by(&sidecar.snapshot()).is_some();
    let (message, mut buffer) = (vec![0x55; SIZE], vec![0; SIZE]);

    let tcp = between(&sidecar, "tcp", || {
        client.write_all(&message).unwrap();
        for _ in 0..PEEKS {
            assert_eq!(server.peek(&mut buffer).unwrap(), SIZE);
        }
        for _ in 0..PARTS {
            server.read_exact(&mut buffer[..SIZE / PARTS]).unwrap();
        }
    });
    let udp = between(&sidecar, "udp", || {
        assert_eq!(left.send_to(&message, right.local_addr().unwrap()).unwrap(), SIZE);
        for _ in 0..PEEKS {
            assert_eq!(right.peek(&mut buffer).unwrap(), SIZE);
        }
        assert_eq!(right.recv(&mut buffer).unwrap(), SIZE);
    });
    eprintln!("tcp {tcp:?}, udp {udp:?}, on functions: {functions}");
    // Every peek and partial read of a connection returns a timestamp; peeks of a datagram do not.
    assert_eq!(tcp[0], (PEEKS + PARTS) as f64, "TCP");
    assert_eq!(udp[0], if functions { 1.0 } else { (PEEKS + 1) as f64 }, "UDP");
    // A peek takes no data, but the tracepoint cannot distinguish it from a read. It counts data once.
    let kept = waits && functions && keeps_waits(&sidecar.snapshot());
    let once = if waits { 1.0 } else { 0.0 };
    assert_eq!([tcp[1], udp[1]], [if kept { PARTS as f64 } else { once }, once], "waits");
}
