//! Tests of TCP reads that waited behind a lost segment. A filter on the reader's socket causes the loss.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use super::{
    latency::{DURATION, LOST, served_by},
    support::{
        counters::{out_of_order, retransmitted},
        line::{Line, Point, Value},
        options,
        sidecar::Sidecar,
        surroundings::{alone, function, often, patience, skip, virtual_machine, wait_for},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
};

/// Bytes of a message, which is one segment.
const SIZE: usize = 100;
/// The content of a message that passes the filter.
const KEPT: u8 = 0x55;
/// The content of a message that the filter can drop.
const LOSABLE: u8 = 0xaa;
/// The number of messages in order before, between and after losses.
const ORDERLY: usize = 8;
const LOSSES: usize = 2;
/// The blocked reads of a loss: the late segment, and the segment that waited for it.
const BLOCKED: usize = 2;
/// The number of dropped transmissions. A probe and a fast retransmission may follow at once; the next
/// retransmission follows after a timeout of at least 200 ms.
const AGAIN: u64 = 3;

/// A connection that loses segments on their way to the reader.
struct Lossy {
    wire: Wire,
    writer: TcpStream,
    reader: TcpStream,
}

impl Lossy {
    fn connect(version: Version) -> Self {
        let wire = Wire::veth(version);
        let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
        let address = listener.local_addr().unwrap();
        let limit = patience(Duration::from_secs(10));
        let reader = wire.left.run(|| TcpStream::connect_timeout(&address, limit).unwrap());
        let (writer, _) = listener.accept().unwrap();
        writer.set_nodelay(true).unwrap();
        reader.set_read_timeout(Some(limit)).unwrap();
        Self { wire, writer, reader }
    }

    fn write(&self, byte: u8) {
        (&self.writer).write_all(&[byte; SIZE]).unwrap();
    }

    fn read(&self, byte: u8) {
        let mut message = [0; SIZE];
        assert_eq!((&self.reader).read(&mut message).unwrap(), SIZE, "a message came in parts");
        assert_eq!(message, [byte; SIZE]);
    }

    fn in_order(&self) {
        for _ in 0..ORDERLY {
            self.write(KEPT);
            self.read(KEPT);
        }
    }

    /// Drops a segment for a while, then reads it and the next segment. Returns the least time that the next
    /// segment waited.
    fn out_of_order(&self) -> Duration {
        let ends = || (out_of_order(&self.wire.left), retransmitted(&self.wire.right));
        let before = ends();
        filter(&self.reader, Some(&LOSE));
        self.write(LOSABLE);
        self.write(KEPT);
        let limit = patience(Duration::from_secs(10));
        wait_for("a segment out of order", limit, || (ends().0 > before.0).then_some(()));
        let waiting = Instant::now();
        wait_for("TCP to send again", limit, || (ends().1 >= before.1 + AGAIN).then_some(()));
        let waited = waiting.elapsed();
        filter(&self.reader, None);
        self.read(LOSABLE);
        self.read(KEPT);
        waited
    }
}

/// The measurements of TCP at a layer between two lines of a sidecar.
struct Seen {
    measured: f64,
    seconds: f64,
    blocked: f64,
}

impl Seen {
    fn between(before: &Line, after: &Line, layer: &str, version: Version) -> Self {
        let attributes =
            [("undercurrent.network.layer", layer), ("network.transport", "tcp"), ("network.type", version.name())];
        let lost = [attributes.as_slice(), &[("undercurrent.reason", "head_of_line")]].concat();
        let seconds = |line: &Line| line.find(DURATION, &attributes).map(seconds).sum::<f64>();
        Self {
            measured: after.total(DURATION, &attributes) - before.total(DURATION, &attributes),
            seconds: seconds(after) - seconds(before),
            blocked: after.total(LOST, &lost) - before.total(LOST, &lost),
        }
    }
}

fn seconds(point: &Point) -> f64 {
    match &point.value {
        Value::Histogram(histogram) => histogram.sum.unwrap(),
        other => panic!("no histogram: {other:?}"),
    }
}

/// Exchanges messages in order and out of order. Returns the measurements at the queue and at the read, and the
/// least time that data waited for the network.
fn messages(sidecar: &Sidecar, version: Version) -> ([Seen; 2], Duration) {
    let lossy = Lossy::connect(version);
    let before = sidecar.snapshot();
    let mut waited = Duration::ZERO;
    lossy.in_order();
    for _ in 0..LOSSES {
        waited += lossy.out_of_order();
        lossy.in_order();
    }
    let after = sidecar.snapshot();
    (["socket_enqueued", "socket_read"].map(|layer| Seen::between(&before, &after, layer, version)), waited)
}

/// The number of reads of data in order, before the first loss and after each loss.
const READS: usize = ORDERLY * (LOSSES + 1);

fn assert_exactly(what: &str, seen: f64, expected: usize) {
    let expected = expected as f64;
    // Other programs on a real machine may add reads.
    assert!(seen == expected || seen > expected && virtual_machine().is_none(), "{seen} {what}, not {expected}");
}

#[test]
fn reads_that_waited_for_the_network_are_left_out_and_counted() {
    let Some(_alone) = alone("head-of-line blocking excluded") else { return };
    let sidecar = Sidecar::start(often());
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("head-of-line blocking: nothing serves socket_read");
    }
    // Without socket storage, all reads of a connection after its first loss are excluded.
    let kept = function("bpf_sk_storage_get_tracing")
        && served_by(&sidecar.snapshot(), "socket_read").as_deref() != Some("kprobe");
    let expected = if kept { (READS, LOSSES * BLOCKED) } else { (ORDERLY, LOSSES * (BLOCKED + ORDERLY)) };
    for version in Version::ALL {
        let ([arrivals, reads], waited) = messages(&sidecar, version);
        eprintln!("{version:?}: {} in {} s, {} blocked for {waited:?}", reads.measured, reads.seconds, reads.blocked);
        assert_exactly("measured", reads.measured, expected.0);
        record(LOST, reads.blocked, exactly(expected.1 as f64));
        // Functions see the segment that fills a gap. The tracepoint sees the segments that waited, and excludes
        // them.
        let arrived = match served_by(&sidecar.snapshot(), "socket_enqueued").as_deref() {
            None => (0, 0),
            Some("tracepoint") => (READS, LOSSES),
            Some(_) => (READS + LOSSES, 0),
        };
        assert_exactly("measured as they arrived", arrivals.measured, arrived.0);
        assert_exactly("blocked as they arrived", arrivals.blocked, arrived.1);
        if virtual_machine().is_some() {
            assert!(reads.seconds < waited.as_secs_f64(), "{} s of {waited:?}", reads.seconds);
        }
    }
}

#[test]
fn reads_that_waited_for_the_network_can_be_measured_too() {
    let Some(_alone) = alone("head-of-line blocking included") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undercurrent.yaml");
    fs::write(&file, "signals: {latency: {head_of_line_blocking: include}}\n").unwrap();
    let sidecar = Sidecar::start_with(often(), &["--config", file.to_str().unwrap()], &[]);
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("head-of-line blocking: nothing serves socket_read");
    }
    for version in Version::ALL {
        let ([arrivals, reads], waited) = messages(&sidecar, version);
        eprintln!("{version:?}: {} in {} s, {} blocked for {waited:?}", reads.measured, reads.seconds, reads.blocked);
        assert_exactly("measured", reads.measured, READS + LOSSES * BLOCKED);
        if served_by(&sidecar.snapshot(), "socket_enqueued").is_some() {
            assert_exactly("measured as they arrived", arrivals.measured, READS + LOSSES);
        }
        assert_eq!(reads.blocked, 0.0);
        assert!(reads.seconds >= waited.as_secs_f64(), "{} s of {waited:?}", reads.seconds);
    }
}

/// A socket filter that accepts packets without data, and data that starts unlike a losable message. The packet
/// starts at the TCP header.
const LOSE: [libc::sock_filter; 10] = {
    const fn code(code: u32, k: u32) -> libc::sock_filter {
        jump(code, k, 0, 0)
    }
    const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    // The upper half of this byte is the header's length in 32-bit words, so masked it is four times the length.
    const LENGTH: u32 = 12;
    [
        code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, LENGTH),
        code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf0),
        code(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 2),
        code(libc::BPF_MISC | libc::BPF_TAX, 0),
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
        jump(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_X, 0, 0, 2),
        code(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0),
        jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, LOSABLE as u32, 1, 0),
        code(libc::BPF_RET | libc::BPF_K, u32::MAX),
        code(libc::BPF_RET | libc::BPF_K, 0),
    ]
};

/// Sets or removes a socket's filter.
fn filter(socket: &TcpStream, filter: Option<&[libc::sock_filter]>) {
    let (option, filter) = filter.map_or((libc::SO_DETACH_FILTER, &[][..]), |filter| (libc::SO_ATTACH_FILTER, filter));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    options::set(socket, libc::SOL_SOCKET, option, &program).unwrap();
}
