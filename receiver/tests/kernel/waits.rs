//! Tests how long packets wait for their readers.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use super::{
    latency::{DURATION, LOST, arrivals_served_by, left_out, seen, sees_datagrams, served_by},
    support::{
        line::{Line, Value},
        options,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skip, stores_readers, tells_left_out},
        talk::Talk,
        wire::{Version, Wire},
    },
};

pub const WAIT: &str = "undercurrent.network.receive.wait.duration";
/// The delay of every reader, longer than any other wait in the test.
const LATE: Duration = Duration::from_millis(400);
const MESSAGES: usize = 3;
const SIZE: usize = 200;
/// Bytes of a datagram that the tracepoint at `socket_read` sees: its data is in pages, which another function
/// copies.
pub const LONG: usize = 40_000;

/// Returns the size of datagrams that the alternate of `socket_read` sees.
fn datagram(line: &Line) -> usize {
    if sees_datagrams(line, "socket_read") { SIZE } else { LONG }
}

/// Returns the number of durations, and their sum in seconds.
fn amount(line: &Line, metric: &str, attributes: &[(&str, &str)]) -> (f64, f64) {
    let histograms = line.find(metric, attributes).filter_map(|point| match &point.value {
        Value::Histogram(histogram) => Some((histogram.count as f64, histogram.sum.unwrap())),
        _ => None,
    });
    histograms.fold((0.0, 0.0), |(count, sum), (more, longer)| (count + more, sum + longer))
}

/// Returns the number and the sum of durations between two lines.
pub fn between([before, after]: [&Line; 2], metric: &str, attributes: &[(&str, &str)]) -> (f64, f64) {
    let ((count, sum), (more, longer)) = (amount(before, metric, attributes), amount(after, metric, attributes));
    (more - count, longer - sum)
}

fn late_readers(version: Version) {
    let sidecar = Sidecar::start(often());
    let wire = Wire::best(version);
    let mut talk = Talk::open(&wire);
    for transport in ["tcp", "udp"] {
        let before = sidecar.snapshot();
        let reads = match transport {
            "tcp" => {
                talk.tcp_read_after(LATE, MESSAGES, SIZE);
                talk.tcp_reads
            }
            _ => {
                talk.udp_read_after(LATE, MESSAGES, datagram(&before));
                talk.udp_reads
            }
        };
        let lines = [&before, &sidecar.snapshot()];
        let attributes = [("network.transport", transport), ("network.type", version.name())];
        let whole = [arrivals_served_by(&before), served_by(&before, "socket_read")];
        if whole.contains(&None) {
            assert_eq!(before.find(WAIT, &[]).count(), 0, "a wait that nothing measures has points");
            skip(&format!(
                "waits of {transport} over {}: not both of socket_enqueued and socket_read are served",
                version.name()
            ));
            continue;
        }
        let late = reads as f64 * LATE.as_secs_f64();
        let (count, sum) = between(lines, WAIT, &attributes);
        assert!(count >= reads as f64, "{transport}: {count} waits of {reads} reads");
        assert!(sum >= late, "{transport}: {sum} s of {late} s");
        let at = |layer| {
            between(lines, DURATION, &[attributes.as_slice(), &[("undercurrent.network.layer", layer)]].concat())
        };
        assert!(at("socket_read").1 >= late, "{transport}: {:?}", at("socket_read"));
        assert!(
            at("socket_enqueued").1 < late / 2.0,
            "{transport}: late readers show before the queue: {:?}",
            at("socket_enqueued")
        );
    }
}

#[test]
fn late_readers_show_where_they_read_and_in_the_wait_over_ipv4() {
    let Some(_alone) = alone("late readers over IPv4") else { return };
    late_readers(Version::Ipv4);
}

#[test]
fn late_readers_show_where_they_read_and_in_the_wait_over_ipv6() {
    let Some(_alone) = alone("late readers over IPv6") else { return };
    late_readers(Version::Ipv6);
}

#[test]
fn every_read_packet_has_waited_once() {
    let Some(_alone) = alone("waits") else { return };
    let sidecar = Sidecar::start(often());
    let before = sidecar.snapshot();
    let wire = if sees_datagrams(&before, "socket_read") {
        Wire::best(Version::Ipv4)
    } else {
        // The tracepoint does not see a read that verifies the checksum. Loopback omits checksums.
        Wire::loopback(Version::Ipv4)
    };
    let mut talk = Talk::open(&wire);
    talk.tcp(200, SIZE);
    talk.udp(200, datagram(&before));
    let after = sidecar.snapshot();
    for transport in ["tcp", "udp"] {
        let attributes = [("network.transport", transport), ("network.type", "ipv4")];
        let lost = [
            attributes.as_slice(),
            &[("undercurrent.reason", "missing_start"), ("undercurrent.signal", "receive_wait")],
        ]
        .concat();
        let waits = |line: &Line| amount(line, WAIT, &attributes).0 + line.total(LOST, &lost);
        let read = |line: &Line| seen(line, "socket_read", Some(transport), Version::Ipv4);
        if before.find(LOST, &lost).next().is_none() {
            skip(&format!("waits of {transport}: not both of socket_enqueued and socket_read are served"));
        } else {
            assert_eq!(waits(&after) - waits(&before), read(&after) - read(&before), "{transport}");
            let lost = after.total(LOST, &lost) - before.total(LOST, &lost);
            let known = read(&after) - read(&before) - lost;
            eprintln!("{transport}: {known} waits measured, {lost} lost");
            assert!(known > 0.0, "{transport}: all of {lost} waits are lost");
            let most = most_lost([&before, &after], transport, known + lost);
            assert!(lost <= most, "{transport}: {lost} waits are not known, {known} are");
        }
    }
}

/// Returns the largest number of lost waits among `reads`. By fentry and kprobe: two percent of UDP, because a reader on another
/// CPU may be faster than the program at the exit of the enqueuing function; by kprobe also the runs that the kernel
/// skipped. By tracepoint: any number, because a reader may be faster than the tracepoint.
fn most_lost([before, after]: [&Line; 2], transport: &str, reads: f64) -> f64 {
    let arrival = if served_by(after, "socket_arrival").is_some() { "socket_arrival" } else { "socket_enqueued" };
    let hooks = [arrival, "socket_read"];
    let overtaken = if transport == "tcp" { 0.0 } else { reads / 50.0 };
    match hooks.map(|hook| served_by(after, hook)).each_ref().map(|by| by.as_deref().unwrap_or_default()) {
        ["fentry" | "transport", "fentry"] => overtaken,
        ["kprobe", "kprobe"] if tells_left_out() => {
            let skipped = |hook| left_out(after, hook) - left_out(before, hook);
            overtaken + hooks.into_iter().map(skipped).sum::<f64>()
        }
        _ => f64::INFINITY,
    }
}

/// Returns true if programs keep the wait of TCP's data with its connection. Kprobes and kernels before 5.11 have no socket storage; their
/// record of a packet ends with its first part, and other packets can replace it.
pub fn keeps_waits(line: &Line) -> bool {
    stores_readers() && served_by(line, "socket_read").is_some_and(|by| by != "kprobe")
}

/// Returns connected sockets over a wire: the senders, and the readers, which have one port.
fn connections(wire: &Wire, number: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
    let connect = |_| {
        let sender = wire.left.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        sender.set_nodelay(true).unwrap();
        let reader = listener.accept().unwrap().0;
        reader.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
        (sender, reader)
    };
    (0..number).map(connect).unzip()
}

/// Starts a sidecar that measures every packet of these ports. Returns `None`, and reports a skip, if no program keeps waits with
/// connections.
fn sidecar_of(ports: &[u16]) -> Option<Sidecar> {
    let sidecar = Sidecar::configured(&format!("packets: {{sampling: all, filter: {{ports: {ports:?}}}}}\n"));
    let line = sidecar.snapshot();
    if keeps_waits(&line) && arrivals_served_by(&line).is_some() {
        return Some(sidecar);
    }
    skip("waits of connections: no program keeps them in socket storage");
    None
}

const TCP: [(&str, &str); 1] = [("network.transport", "tcp")];
const UNMATCHED: [(&str, &str); 3] =
    [("network.transport", "tcp"), ("undercurrent.reason", "missing_start"), ("undercurrent.signal", "receive_wait")];

#[test]
fn every_part_of_a_message_has_waited() {
    const HEADER: usize = 4;
    let Some(_alone) = alone("headers and bodies") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let (mut senders, mut readers) = connections(&wire, 1);
    let (sender, reader) = (&mut senders[0], &mut readers[0]);
    let Some(sidecar) = sidecar_of(&[reader.local_addr().unwrap().port()]) else { return };
    let before = sidecar.snapshot();
    let (message, mut buffer) = ([0x55; SIZE], [0; SIZE]);
    for _ in 0..MESSAGES {
        sender.write_all(&message).unwrap();
        reader.read_exact(&mut buffer[..HEADER]).unwrap();
        thread::sleep(LATE);
        reader.read_exact(&mut buffer[HEADER..]).unwrap();
    }
    let after = sidecar.snapshot();
    let (count, sum) = between([&before, &after], WAIT, &TCP);
    assert_eq!(count, 2.0 * MESSAGES as f64, "a header and a body are two reads");
    assert!(sum >= MESSAGES as f64 * LATE.as_secs_f64(), "the bodies waited: {sum} s");
    assert_eq!(after.total(LOST, &UNMATCHED) - before.total(LOST, &UNMATCHED), 0.0);
}

/// Data that was queued before the programs were attached has no known arrival, and must not be missing from the counts.
#[test]
fn data_from_before_the_start_is_counted_as_lost() {
    let Some(_alone) = alone("data from before the start") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let (mut senders, mut readers) = connections(&wire, 1);
    let (sender, reader) = (&mut senders[0], &mut readers[0]);
    sender.write_all(&[0x55; SIZE]).unwrap();
    let Some(sidecar) = sidecar_of(&[reader.local_addr().unwrap().port()]) else { return };
    let before = sidecar.snapshot();
    // Without the sequence number of a segment, one that the kernel merges with an older segment looks like the first.
    if served_by(&before, "socket_enqueued").is_some() {
        return skip("data from before the start: waits do not begin at the transport protocol");
    }
    sender.write_all(&[0x55; SIZE]).unwrap();
    for _ in 0..2 {
        reader.read_exact(&mut [0; SIZE]).unwrap();
    }
    let after = sidecar.snapshot();
    let (count, _) = between([&before, &after], WAIT, &TCP);
    let lost = after.total(LOST, &UNMATCHED) - before.total(LOST, &UNMATCHED);
    assert!(lost >= 1.0, "the first message counts as lost: {lost}, {count} waits");
    assert_eq!(count + lost, 2.0, "{count} waits and {lost} lost of two reads");
}

/// Sends datagrams that no process reads.
fn flood(wire: &Wire) {
    const SOCKETS: usize = 400;
    const DATAGRAMS: usize = 100;
    let sender = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    for _ in 0..SOCKETS {
        let receiver = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
        let address = receiver.local_addr().unwrap();
        (0..DATAGRAMS).for_each(|_| assert_eq!(sender.send_to(&[0xaa; 64], address).unwrap(), 64));
    }
}

/// The packets of other sockets fill every table of packets, before and during the waits.
#[test]
fn waits_of_late_readers_survive_packets_that_nobody_reads() {
    const CONNECTIONS: usize = 100;
    let Some(_alone) = alone("waits beside many packets") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let (senders, readers) = connections(&wire, CONNECTIONS);
    let Some(sidecar) = sidecar_of(&[readers[0].local_addr().unwrap().port()]) else { return };
    flood(&wire);
    let before = sidecar.snapshot();
    for mut sender in &senders {
        sender.write_all(&[0x55; SIZE]).unwrap();
    }
    let began = Instant::now();
    flood(&wire);
    let late = began.elapsed().as_secs_f64();
    for mut reader in &readers {
        reader.read_exact(&mut [0; SIZE]).unwrap();
    }
    let after = sidecar.snapshot();
    let (count, sum) = between([&before, &after], WAIT, &TCP);
    let least = 0.98 * CONNECTIONS as f64;
    eprintln!("{count} of {CONNECTIONS} waits, {sum} s of {late} s each");
    assert!(count >= least, "{count} of {CONNECTIONS} waits");
    assert!(sum >= least * late, "{sum} s of {CONNECTIONS} times {late} s");
}

/// The datagrams of one send have one timestamp.
#[test]
fn datagrams_of_one_send_have_a_wait_each() {
    const DATAGRAMS: usize = 10;
    const BYTES: usize = 1000;
    let Some(_alone) = alone("datagrams of one send") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    right.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
    if let Err(error) = options::set(&left, libc::SOL_UDP, libc::UDP_SEGMENT, &(BYTES as i32)) {
        return skip(&format!("datagrams of one send: this kernel does not divide them: {error}"));
    }
    let port = right.local_addr().unwrap().port();
    let sidecar = Sidecar::configured(&format!("packets: {{sampling: all, filter: {{ports: [{port}]}}}}\n"));
    let before = sidecar.snapshot();
    if arrivals_served_by(&before).is_none() || served_by(&before, "socket_read").is_none() {
        return skip("datagrams of one send: not both of socket_enqueued and socket_read are served");
    }
    assert_eq!(left.send_to(&[0x55; DATAGRAMS * BYTES], right.local_addr().unwrap()).unwrap(), DATAGRAMS * BYTES);
    for _ in 0..DATAGRAMS {
        assert_eq!(right.recv(&mut [0; BYTES]).unwrap(), BYTES);
    }
    let after = sidecar.snapshot();
    let (count, _) = between([&before, &after], WAIT, &[("network.transport", "udp")]);
    assert_eq!(count, DATAGRAMS as f64);
}
