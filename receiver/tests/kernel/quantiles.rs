//! Compares quantiles of histograms with the quantiles of all packets, to the bucket. The true durations come from
//! the application: it requests the kernel's timestamp of each read (`SO_TIMESTAMPNS`).

use std::{
    collections::BTreeMap,
    net::{TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use super::{
    latency::{DURATION, LOST, on_functions},
    support::{
        line::{Line, Value},
        sidecar::{Sidecar, file},
        stamped,
        surroundings::{alone, often, patience, virtual_machine},
        wire::{Version, Wire},
    },
};

/// A message is one packet that every hook sees.
const SIZE: usize = 24_000;
/// Buckets per octave at the default scale.
const BUCKETS_AN_OCTAVE: f64 = 4.0;

/// Returns the quantiles to compare. On an emulated processor, one reader in a hundred loses the CPU between the
/// read and the clock.
fn shares() -> &'static [f64] {
    if virtual_machine().is_some() { &[0.1, 0.5, 0.9] } else { &[0.1, 0.5, 0.9, 0.99] }
}

/// Returns the OTLP bucket index of a duration.
fn bucket(duration: Duration) -> i32 {
    (duration.as_secs_f64().log2() * BUCKETS_AN_OCTAVE).ceil() as i32 - 1
}

/// Returns the bucket that contains the quantile of this share.
fn quantile(counts: &BTreeMap<i32, u64>, share: f64) -> i32 {
    let rank = (counts.values().sum::<u64>() as f64 * share).ceil() as u64;
    let mut below = 0;
    let reached = counts.iter().find(|(_, count)| {
        below += **count;
        below >= rank
    });
    *reached.expect("something is counted").0
}

/// Returns the reads at `socket_read` by bucket.
fn measured(line: &Line, transport: &str) -> BTreeMap<i32, u64> {
    let attributes = [("undercurrent.network.layer", "socket_read"), ("network.transport", transport)];
    let mut counts = BTreeMap::new();
    for point in line.find(DURATION, &attributes) {
        let Value::Histogram(histogram) = &point.value else { continue };
        let Some(buckets) = &histogram.positive else { continue };
        assert_eq!(f64::from(histogram.scale).exp2(), BUCKETS_AN_OCTAVE);
        for (place, count) in (buckets.offset..).zip(&buckets.bucket_counts) {
            *counts.entry(place).or_default() += count;
        }
    }
    counts
}

/// Sends messages one after another, and reads each after a delay of one to four milliseconds. Returns their ages.
fn exchange(send: impl Fn(), socket: &impl AsFd, until: Instant) -> Vec<Duration> {
    let (mut ages, mut buffer) = (Vec::new(), vec![0; SIZE]);
    while Instant::now() < until {
        send();
        // Fractions of multiples of the golden ratio are evenly spread and aperiodic.
        let share = (ages.len() as f64 * 0.618_033_988_75).fract();
        thread::sleep(Duration::from_secs_f64(0.001 * (2.0 * share).exp2()));
        let mut length = 0;
        while length < SIZE {
            let (more, age) = stamped::read(socket, &mut buffer[length..]);
            length += more;
            ages.push(age);
        }
    }
    ages
}

/// Both ends of a TCP connection and of a pair of UDP sockets.
struct Ends {
    stream: [TcpStream; 2],
    datagrams: [UdpSocket; 2],
}

impl Ends {
    fn open(wire: &Wire) -> Self {
        let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
        let client = wire.left.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        client.set_nodelay(true).unwrap();
        let server = listener.accept().unwrap().0;
        let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
        let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
        left.connect(right.local_addr().unwrap()).unwrap();
        server.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
        right.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
        stamped::ask(&server);
        stamped::ask(&right);
        Self { stream: [client, server], datagrams: [left, right] }
    }

    /// Returns the ports of the readers.
    fn ports(&self) -> [u16; 2] {
        [self.stream[1].local_addr().unwrap().port(), self.datagrams[1].local_addr().unwrap().port()]
    }

    /// Returns the ages of all read messages over TCP and UDP.
    fn exchange(&self, lasting: Duration) -> [Vec<Duration>; 2] {
        let (until, message) = (Instant::now() + lasting, vec![0x55; SIZE]);
        let write = || std::io::Write::write_all(&mut &self.stream[0], &message).unwrap();
        let send = || assert_eq!(self.datagrams[0].send(&message).unwrap(), SIZE);
        thread::scope(|scope| {
            let tcp = scope.spawn(|| exchange(write, &self.stream[1], until));
            let udp = exchange(send, &self.datagrams[1], until);
            [tcp.join().unwrap(), udp]
        })
    }
}

fn quantiles(sampling: u32, lasting: Duration) {
    let wire = Wire::loopback(Version::Ipv4);
    let ends = Ends::open(&wire);
    // Excludes reads of other programs.
    let filter = format!("filter: {{ports: [{}, {}]}}", ends.ports()[0], ends.ports()[1]);
    let file = file(&format!("packets: {{{filter}}}\n"));
    let share = format!("1/{sampling}");
    let sidecar = Sidecar::start_with(often(), &["--config", file.path().to_str().unwrap(), "--sampling", &share], &[]);
    let ages = ends.exchange(if virtual_machine().is_some() { lasting / 3 } else { lasting });
    let line = sidecar.snapshot();
    for (transport, ages) in ["tcp", "udp"].into_iter().zip(ages) {
        let counts = measured(&line, transport);
        let (count, reads) = (counts.values().sum::<u64>() as f64, ages.len() as f64);
        let lost = line.total(LOST, &[("undercurrent.network.layer", "socket_read"), ("network.transport", transport)]);
        eprintln!("{transport}: {count} of {reads} reads, {lost} lost");
        if sampling == 1 {
            let by_read = transport == "udp" || on_functions(&line, "socket_read");
            // The tracepoint counts every packet that a read copies from.
            let complete = if by_read { count + lost == reads } else { count + lost >= reads };
            assert!(complete && lost <= reads / 1000.0, "{transport}: {count} of {reads}, {lost} lost");
        }
        let mut truth = BTreeMap::new();
        ages.iter().for_each(|age| *truth.entry(bucket(*age)).or_default() += 1);
        for share in shares().iter().copied() {
            let (found, expected) = (quantile(&counts, share), quantile(&truth, share));
            eprintln!("{transport} {share}: bucket {found}, by every packet {expected}");
            assert!((found - expected).abs() <= 1, "{transport} {share}: bucket {found}, by every packet {expected}");
        }
    }
}

#[test]
fn quantiles_are_those_of_every_packet() {
    let Some(_alone) = alone("quantiles") else { return };
    quantiles(1, Duration::from_secs(60));
}

#[test]
fn quantiles_of_a_sample_are_those_of_every_packet() {
    let Some(_alone) = alone("quantiles of a sample") else { return };
    quantiles(8, Duration::from_secs(30));
}
