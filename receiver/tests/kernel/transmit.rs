//! Compares the transmit stages with the counters of the devices.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::metrics::v1::ExponentialHistogramDataPoint;

use super::{
    latency::{LOST, served_by},
    support::{
        counters::{Received, segments_sent, transmitted},
        line::{Line, Value},
        namespace::Namespace,
        options,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skip, skipped, virtual_machine, wait_for},
        talk::Talk,
        wire::{Version, Wire},
    },
    waits::between,
};

pub const DURATION: &str = "undercurrent.network.transmit.duration";
const STAGE: &str = "undercurrent.network.stage";
const MESSAGES: usize = 200;
const SIZE: usize = 200;

/// Returns the number of measured packets of a stage and a transport protocol, and their sum in seconds.
pub fn measured(lines: [&Line; 2], stage: &str, transport: &str) -> (f64, f64) {
    between(lines, DURATION, &[(STAGE, stage), ("network.transport", transport)])
}

/// Returns the measured and the lost packets of a stage for both transport protocols.
fn measured_and_lost(lines: [&Line; 2], stage: &str) -> (f64, f64) {
    let attributes = [(STAGE, stage)];
    let lost = [("undercurrent.signal", "transmit"), ("undercurrent.reason", "missing_start"), (STAGE, stage)];
    let [before, after] = lines.map(|line| line.total(LOST, &lost));
    (between(lines, DURATION, &attributes).0, after - before)
}

/// Returns the TCP packets of a stage in buckets above a duration.
fn longer(lines: [&Line; 2], stage: &str, than: Duration) -> f64 {
    let attributes = [(STAGE, stage), ("network.transport", "tcp")];
    let [before, after] = lines.map(|line| {
        let points = line.find(DURATION, &attributes).filter_map(|point| match &point.value {
            Value::Histogram(histogram) => Some(histogram),
            _ => None,
        });
        let beyond = |histogram: &ExponentialHistogramDataPoint| {
            let buckets = histogram.positive.clone().unwrap_or_default();
            let first = than.as_secs_f64().log2() * f64::from(histogram.scale).exp2();
            let skipped = (first.ceil() as i32 - buckets.offset).max(0) as usize;
            buckets.bucket_counts.iter().skip(skipped).sum::<u64>() as f64
        };
        points.map(|histogram| beyond(histogram)).sum::<f64>()
    });
    after - before
}

/// Returns the lines before and after an action, and the packets that the machine's NICs sent meanwhile.
fn during(sidecar: &Sidecar, what: impl FnOnce()) -> ([Line; 2], f64) {
    let others = || transmitted(&Namespace::current());
    let (before, sent) = (sidecar.snapshot(), others());
    what();
    let after = sidecar.snapshot();
    ([before, after], (others() - sent) as f64)
}

/// Sets permanent neighbour entries at both ends, so that no neighbour solicitations are sent.
pub fn acquaint(wire: &Wire, [left, right]: [&str; 2]) {
    Talk::open(wire).udp(1, SIZE);
    wire.left.ip(&format!("neigh change {} dev {left} nud permanent", wire.server()));
    wire.right.ip(&format!("neigh change {} dev {right} nud permanent", wire.client()));
}

/// Sends datagrams all at once, and receives them. Returns the sum of their times from the sender to the receiver,
/// in seconds.
fn datagrams(wire: &Wire, count: usize, size: usize) -> f64 {
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    right.set_read_timeout(Some(patience(Duration::from_secs(5)))).unwrap();
    let (payload, mut buffer) = (vec![0x55; size], vec![0; size]);
    let mut sent = Vec::with_capacity(count);
    for _ in 0..count {
        sent.push(Instant::now());
        left.send_to(&payload, right.local_addr().unwrap()).unwrap();
    }
    let received = sent.into_iter().map(|sent| {
        assert_eq!(right.recv(&mut buffer).unwrap(), size);
        sent.elapsed().as_secs_f64()
    });
    received.sum()
}

#[test]
fn a_slow_link_shows_in_its_qdisc() {
    let Some(_alone) = alone("waits in a qdisc") else { return };
    const COUNT: usize = 60;
    const PAYLOAD: usize = 958;
    // Including the Ethernet, IP and UDP headers.
    const FRAME: f64 = 1000.0;
    // Bytes per second, and bytes of a burst.
    const RATE: f64 = 50_000.0;
    const BURST: f64 = 2000.0;
    let wire = Wire::veth(Version::Ipv4);
    acquaint(&wire, ["wire", "wire"]);
    let sidecar = Sidecar::start(often());
    wire.left.tc("qdisc add dev wire root tbf rate 400kbit burst 2000 limit 1000000");
    let sent = transmitted(&wire.left);
    let mut passed = 0.0;
    let (lines, others) = during(&sidecar, || passed = datagrams(&wire, COUNT, PAYLOAD));
    let lines = lines.each_ref();
    let sent = (transmitted(&wire.left) - sent) as f64;
    let (count, sum) = measured(lines, "qdisc", "udp");
    let (seen, lost) = measured_and_lost(lines, "qdisc");
    // The bucket is full when the first datagram arrives.
    let expected: f64 = (1..=COUNT).map(|nth| ((nth as f64 * FRAME - BURST) / RATE).max(0.0)).sum();
    eprintln!("{count} waits of {sent} packets, {sum} s of {expected} s, {passed} s; {lost} lost, others {others}");
    assert_eq!(sent, COUNT as f64);
    let skipped = skipped(COUNT);
    assert!(seen + lost >= sent - skipped && seen + lost <= sent + others, "{seen} waits and {lost} lost of {sent}");
    assert!(lost <= skipped + others, "{lost} waits are not known");
    // A busy machine adds waiting time, which the receiver observes too.
    assert!(count >= sent - skipped && sum > 0.9 * expected, "{sum} s of {expected} s");
    assert!(sum < f64::max(1.1 * expected, passed), "{sum} s of {expected} s, {passed} s until they were received");
    let (_, device) = measured(lines, "device", "udp");
    assert!(device < expected / 10.0, "the qdisc's wait shows at the device: {device} s");
}

/// Among thousands of waiting packets, few collide in the table.
#[test]
fn a_long_queue_in_a_qdisc_is_measured() {
    let Some(_alone) = alone("thousands of packets in a qdisc") else { return };
    // In frames of 100 bytes: three seconds at the rate below.
    const COUNT: usize = 3000;
    const PAYLOAD: usize = 58;
    // A single socket's send buffer is too small for so many packets in flight.
    const SENDERS: usize = 16;
    let wire = Wire::veth(Version::Ipv4);
    acquaint(&wire, ["wire", "wire"]);
    let sidecar = Sidecar::start(often());
    wire.left.tc("qdisc add dev wire root tbf rate 800kbit burst 2000 limit 10000000");
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let senders = [(); SENDERS].map(|()| wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap()));
    let sent = transmitted(&wire.left);
    let (lines, others) = during(&sidecar, || {
        for sender in senders.iter().cycle().take(COUNT) {
            sender.send_to(&[0x55; PAYLOAD], right.local_addr().unwrap()).unwrap();
        }
        wait_for("the qdisc to be empty", patience(Duration::from_secs(10)), || {
            (transmitted(&wire.left) - sent == COUNT as u64).then_some(())
        });
    });
    let (seen, lost) = measured_and_lost(lines.each_ref(), "qdisc");
    eprintln!("{seen} waits and {lost} lost of {COUNT}, others {others}");
    assert!(seen + lost >= COUNT as f64 - skipped(COUNT) && seen + lost <= COUNT as f64 + others);
    assert!(lost <= 0.02 * COUNT as f64 + others, "{lost} of {COUNT} waits are not known");
}

/// When UDP sends a packet or the qdisc gets it, the packet has no timestamp for sampling: the choice is random.
#[test]
fn a_sample_counts_for_all_on_its_way_out() {
    let Some(_alone) = alone("a sample of packets on their way out") else { return };
    const ONE_IN: f64 = 8.0;
    let messages = if virtual_machine().is_some() { 500 } else { 4000 };
    let wire = Wire::veth(Version::Ipv4);
    acquaint(&wire, ["wire", "wire"]);
    wire.left.queue("wire");
    let sidecar = Sidecar::start_with(often(), &["--sampling", &format!("1/{ONE_IN}")], &[]);
    let mut talk = Talk::open(&wire);
    let (lines, others) = during(&sidecar, || {
        talk.tcp(messages, SIZE);
        talk.udp(messages, SIZE);
    });
    let lines = lines.each_ref();
    let seen_sent = served_by(lines[1], "transmit_send").is_some();
    let messages = messages as f64;
    for (stage, transport, sent) in [
        ("stack", "tcp", 2.0 * messages),
        ("stack", "udp", if seen_sent { 2.0 * messages } else { 0.0 }),
        ("qdisc", "tcp", messages),
        ("qdisc", "udp", messages),
    ] {
        let (count, _) = measured(lines, stage, transport);
        eprintln!("{stage}: {count} of {sent} packets of {transport}, others {others}");
        assert_eq!(count % ONE_IN, 0.0, "{stage}: {count} is no multiple of {ONE_IN}");
        // Five standard deviations of a binomial share: exceeded once in a million runs. Acknowledgements may be
        // sent without data.
        let deviation = 5.0 * (sent * (ONE_IN - 1.0)).sqrt();
        let more = if transport == "tcp" { 0.1 * sent } else { 0.0 };
        assert!(
            count >= sent - deviation && count <= sent + deviation + more + ONE_IN * others,
            "{stage}: {count} of {sent}"
        );
    }
}

#[test]
fn devices_without_a_qdisc_or_a_driver_have_neither_wait() {
    let Some(_alone) = alone("packets over virtual devices") else { return };
    let sidecar = Sidecar::start(often());
    for (wire, namespaces) in [(Wire::veth(Version::Ipv6), 2), (Wire::loopback(Version::Ipv4), 1)] {
        let mut talk = Talk::open(&wire);
        // Acknowledgements without data are sent if a reader is late.
        let segments = || [&wire.left, &wire.right].into_iter().take(namespaces).map(segments_sent).sum::<u64>() as f64;
        let (before, received) = (segments(), Received::by_others(&wire));
        let (lines, others) = during(&sidecar, || {
            talk.tcp(MESSAGES, SIZE);
            talk.udp(MESSAGES, SIZE);
        });
        let local = (Received::by_others(&wire) - received).tcp as f64;
        let (segments, lines) = (segments() - before, lines.each_ref());
        for stage in ["qdisc", "device"] {
            let (seen, lost) = measured_and_lost(lines, stage);
            assert!(seen + lost <= others, "{stage}: {seen} waits and {lost} lost, {others} of others");
        }
        let (count, sum) = measured(lines, "stack", "tcp");
        let sent = 2.0 * MESSAGES as f64;
        assert!(count >= sent && count <= segments + local + others, "{count} of {sent} to {segments} segments");
        assert!(sum > 0.0 && sum / count < patience(Duration::from_millis(5)).as_secs_f64(), "{sum} s of {count}");
        let (count, sum) = measured(lines, "stack", "udp");
        if served_by(lines[1], "transmit_send").is_some() {
            // Every packet was matched.
            assert!(count >= sent && count <= sent + others, "{count} of {sent} datagrams");
            assert!(sum > 0.0 && sum / count < patience(Duration::from_millis(5)).as_secs_f64(), "{sum} s of {count}");
        } else {
            assert_eq!(count, 0.0);
        }
    }
}

#[test]
fn what_waits_for_its_neighbours_address_has_not_got_to_the_qdisc() {
    let Some(_alone) = alone("datagrams that wait for an address") else { return };
    const WAIT: Duration = Duration::from_millis(500);
    let sidecar = Sidecar::start(often());
    if served_by(&sidecar.snapshot(), "transmit_send").is_none() {
        return skip("datagrams that wait for an address: nothing sees here when UDP sends");
    }
    let wire = Wire::veth(Version::Ipv4);
    let receiver = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    receiver.set_read_timeout(Some(patience(Duration::from_secs(5)))).unwrap();
    let sender = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let answers = |answers: bool| {
        let ignored = if answers { "0" } else { "8" };
        wire.right.run(|| fs::write("/proc/sys/net/ipv4/conf/wire/arp_ignore", ignored).unwrap());
    };
    answers(false);
    wire.left.run(|| fs::write("/proc/sys/net/ipv4/neigh/wire/mcast_solicit", "100").unwrap());
    wire.left.run(|| fs::write("/proc/sys/net/ipv4/neigh/wire/retrans_time_ms", "50").unwrap());
    let (lines, others) = during(&sidecar, || {
        sender.send_to(&[0x55], receiver.local_addr().unwrap()).unwrap();
        thread::sleep(WAIT);
        answers(true);
        assert_eq!(receiver.recv(&mut [0]).unwrap(), 1);
    });
    let (count, sum) = measured(lines.each_ref(), "stack", "udp");
    eprintln!("{sum} s of {count}, others {others}");
    assert!(count >= 1.0 && count <= 1.0 + others, "{count} datagrams");
    assert!(sum >= WAIT.as_secs_f64() && sum < WAIT.as_secs_f64() + patience(Duration::from_secs(1)).as_secs_f64());
}

/// Sends a stream at a limited rate in bytes per second, with a departure time for each packet. Returns the
/// duration.
fn paced(wire: &Wire, rate: u32, bytes: usize) -> f64 {
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let mut client = wire.left.run(|| TcpStream::connect_timeout(&address, patience(Duration::from_secs(2))).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(patience(Duration::from_secs(5)))).unwrap();
    options::set(&client, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate).unwrap();
    let begun = Instant::now();
    let reader = thread::spawn(move || server.read_exact(&mut vec![0; bytes]).unwrap());
    client.write_all(&vec![0x55; bytes]).unwrap();
    reader.join().unwrap();
    begun.elapsed().as_secs_f64()
}

#[test]
fn packets_that_are_to_depart_later_are_not_late() {
    let Some(_alone) = alone("paced packets") else { return };
    const RATE: u32 = 100_000;
    const BYTES: usize = 200_000;
    let wire = Wire::veth(Version::Ipv4);
    // `fq` holds packets until their departure time. Without `fq`, TCP paces internally.
    let fq = wire.left.run(|| Command::new("tc").args("qdisc add dev wire root fq".split(' ')).output().unwrap());
    if !fq.status.success() {
        eprintln!("this kernel has no fq: {}", String::from_utf8_lossy(&fq.stderr).trim());
    }
    let sidecar = Sidecar::start(often());
    let mut took = 0.0;
    let (lines, others) = during(&sidecar, || took = paced(&wire, RATE, BYTES));
    let lines = lines.each_ref();
    assert!(took > 0.5 * BYTES as f64 / f64::from(RATE), "nothing was held up: {took} s");
    // Half of the packets wait longer; an emulated processor may delay some.
    const SOON: Duration = Duration::from_millis(20);
    for stage in ["stack", "qdisc"] {
        let ((count, sum), late) = (measured(lines, stage, "tcp"), longer(lines, stage, SOON));
        eprintln!("{stage}: {count} segments, {late} of them late, {sum} s of {took} s");
        if stage == "qdisc" && !fq.status.success() {
            assert!(count <= others, "{count} waits in no qdisc");
        } else {
            assert!(count >= 10.0 && late < count / 4.0, "{stage}: {late} of {count} segments were late");
        }
    }
}

/// Returns the datagrams that left a qdisc, and the packets that the filter could not decide.
fn chosen(lines: [&Line; 2]) -> [f64; 2] {
    let unfiltered = [("undercurrent.signal", "transmit"), ("undercurrent.reason", "not_filterable"), (STAGE, "qdisc")];
    let [before, after] = lines.map(|line| line.total(LOST, &unfiltered));
    [measured(lines, "qdisc", "udp").0, after - before]
}

#[test]
fn packets_that_the_filter_chooses_are_measured_on_their_way_out() {
    let Some(_alone) = alone("filters on the way out") else { return };
    const COUNTS: [usize; 2] = [60, 100];
    let wire = Wire::veth(Version::Ipv4);
    acquaint(&wire, ["wire", "wire"]);
    wire.left.queue("wire");
    let receiver = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let senders = COUNTS.map(|_| wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap()));
    let send = || {
        for (sender, count) in senders.iter().zip(COUNTS) {
            (0..count).for_each(|_| assert_eq!(sender.send_to(&[0x55], receiver.local_addr().unwrap()).unwrap(), 1));
        }
    };
    let (all, port) = (COUNTS.iter().sum::<usize>(), senders[0].local_addr().unwrap().port());
    // For each filter: the selected packets, and the packets that it could not decide.
    let cases = [
        (format!("ports: [{port}]"), [COUNTS[0], 0]),
        (format!("network_namespaces: [{}]", wire.left.inode()), [all, 0]),
        (format!("network_namespaces: [{}]", wire.right.inode()), [0, 0]),
        ("interfaces: [wire]".to_owned(), [all, 0]),
        ("interfaces: [undercurrent-no]".to_owned(), [0, 0]),
        // Filters by reader and by queue length do not apply to sent packets.
        ("processes: [1]".to_owned(), [0, all]),
        (format!("min_receive_queue: 1, ports: [{port}]"), [0, COUNTS[0]]),
    ];
    for (filter, expected) in cases {
        // The filter applies to the names of interfaces that the sidecar sees.
        let configuration = format!("packets: {{filter: {{{filter}}}}}\n");
        let sidecar = wire.left.run(|| Sidecar::configured(&configuration));
        let (lines, others) = during(&sidecar, send);
        let counts = chosen(lines.each_ref());
        eprintln!("{filter}: {counts:?} of {expected:?}, others {others}");
        let skipped = skipped(all);
        for (count, expected) in counts.into_iter().zip(expected.map(|count| count as f64)) {
            assert!(count <= expected && count >= expected - skipped, "{filter}: {counts:?} of {expected}");
        }
    }
}

#[test]
fn every_packet_that_a_driver_got_is_done_with() {
    let Some(_alone) = alone("packets of drivers") else { return };
    if virtual_machine().is_none() {
        return skip("packets of drivers: this machine has no two NICs of its own to send between");
    }
    let sidecar = Sidecar::start(often());
    let wire = Wire::best(Version::Ipv4);
    acquaint(&wire, ["vnet0", "vnet1"]);
    let mut talk = Talk::open(&wire);
    let sent = || (transmitted(&wire.left) + transmitted(&wire.right)) as f64;
    let before = sent();
    let (lines, _) = during(&sidecar, || {
        talk.tcp(MESSAGES, SIZE);
        talk.udp(MESSAGES, SIZE);
    });
    let lines = lines.each_ref();
    let sent = sent() - before;
    let (waits, unknown) = measured_and_lost(lines, "qdisc");
    let (completions, unseen) = measured_and_lost(lines, "device");
    let (count, sum) = between(lines, DURATION, &[(STAGE, "device")]);
    eprintln!("{sent} packets: {waits} left qdiscs and {unknown} unknown, {completions} sent and {unseen} unseen");
    eprintln!("device: {count} in {sum} s");
    assert!(sent >= 4.0 * MESSAGES as f64);
    assert!(waits + unknown == sent && unknown <= 2.0, "{waits} waits and {unknown} lost of {sent}");
    // The driver frees sent packets at the next send. So packets from before are freed in the test, and the last
    // ones are not.
    const HELD: f64 = 32.0;
    assert!((completions + unseen - sent).abs() <= HELD, "{completions} sent and {unseen} unseen of {sent}");
    assert!(unseen <= HELD && sum > 0.0, "{unseen} unseen, {sum} s");
}
