//! Converts the times of a packet to one wall clock.
//!
//! A receive timestamp is in the wall clock at that time. All other times are monotonic. If the wall clock was set between the
//! receive timestamp and the read, both are converted by the offset that is valid now.

use std::collections::VecDeque;

use undercurrent_ebpf::abi::slow::{SlowPacket, flag};

use crate::telemetry::UnixNanos;

/// Changes of the offset below this many nanoseconds are errors of its measurement.
const PRECISION: u64 = 2_000;
/// The longest time from sending to receive timestamp, and from there to the socket's queue, nanoseconds. A longer one is a difference of
/// two clocks.
const LONGEST: u64 = 60_000_000_000;
/// Number of steps of the wall clock that are kept.
const STEPS: usize = 16;

/// A step of the wall clock, between two readings of its offset.
struct Step {
    /// The offset before the step.
    offset: u64,
    /// The reading after the step, nanoseconds of the monotonic clock.
    until: u64,
}

/// The offset between the wall clock and the monotonic clock, with its recent steps.
pub struct Offsets {
    current: u64,
    steps: VecDeque<Step>,
}

/// The times of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time at which a sender on this node released the packet; `None` for other senders, or if unknown.
    pub sent: Option<UnixNanos>,
    /// The first receive timestamp on this host of a packet that it forwarded; `None` for other packets, or if unknown.
    pub forwarded: Option<UnixNanos>,
    /// The last receive timestamp.
    pub start: UnixNanos,
    /// The times at `ip`, `transport` and `socket_enqueued`; `None` if unknown.
    pub layers: [Option<UnixNanos>; 3],
    /// The time of the last layer.
    pub end: UnixNanos,
    /// The last wakeup of the reader, and the time at which it got a CPU after it; `None` if unknown.
    pub reader: Option<[UnixNanos; 2]>,
}

impl Times {
    /// Returns the first receive timestamp on this host.
    pub fn received(&self) -> UnixNanos {
        self.forwarded.unwrap_or(self.start)
    }

    /// Returns the time from the last receive timestamp to the last layer, in nanoseconds.
    pub const fn age(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }
}

impl Offsets {
    /// Starts with an offset in nanoseconds, modulo 2^64.
    pub const fn new(current: u64) -> Self {
        Self { current, steps: VecDeque::new() }
    }

    /// Updates the offset, at a time in nanoseconds of the monotonic clock.
    pub fn update(&mut self, offset: u64, now: u64) {
        if distance(offset, self.current) <= PRECISION {
            return;
        }
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(Step { offset: self.current, until: now });
        self.current = offset;
    }

    /// Returns the times of a packet in the current wall clock; `None` if a step of the clock makes its receive timestamp ambiguous.
    pub fn times(&self, packet: &SlowPacket) -> Option<Times> {
        let enqueued = Some(packet.enqueued).filter(|_| packet.flags & flag::RECORDED != 0);
        let received = match enqueued {
            Some(enqueued) => self.received_before(packet.timestamp, enqueued)?,
            None => self.received(packet)?,
        };
        let wall = |monotonic: u64| UnixNanos(monotonic.wrapping_add(self.current));
        // The scratch buffer may still have the time of an earlier packet, if the clock was set back.
        let end = enqueued.unwrap_or(packet.now);
        let forwarded = Some(packet.host).filter(|time| (1..LONGEST).contains(time));
        let forwarded = forwarded.and_then(|time| received.checked_sub(time));
        let first = forwarded.unwrap_or(received);
        let is_before = |time: &u64| *time != 0 && *time <= first && first - time < LONGEST;
        let sent = Some(packet.sent).filter(is_before);
        let passed = packet.passed.map(|time| (time != 0 && (received..=end).contains(&time)).then_some(time));
        let [ip, transport] = match passed {
            [Some(ip), Some(transport)] if ip > transport => [None, Some(transport)],
            passed => passed,
        };
        // Where the wait begins at `transport`, the arrival in the queue is not known.
        let queue = enqueued.filter(|time| *time <= packet.now && transport != Some(*time));
        Some(Times {
            sent: sent.map(wall),
            forwarded: forwarded.map(wall),
            start: wall(received),
            layers: [ip, transport, queue].map(|time| time.map(wall)),
            end: wall(packet.now),
            reader: reader(packet).map(|times| times.map(wall)),
        })
    }

    /// Returns the monotonic time of a receive timestamp that precedes `enqueued` closely.
    fn received_before(&self, timestamp: u64, enqueued: u64) -> Option<u64> {
        let valid = self.steps.iter().filter(|step| step.until >= enqueued).map(|step| step.offset);
        let received = valid.chain([self.current]).map(|offset| timestamp.wrapping_sub(offset));
        // Otherwise the clock was set twice between two updates, and the offset at the timestamp is unknown.
        received.filter(|received| *received <= enqueued && enqueued - received < LONGEST).max()
    }

    /// Returns the monotonic time of a packet's receive timestamp; `None` if the clock was set since.
    fn received(&self, packet: &SlowPacket) -> Option<u64> {
        let received = packet.timestamp.wrapping_sub(self.current);
        let is_steady = distance(packet.offset, self.current) <= PRECISION
            && self.steps.back().is_none_or(|step| step.until < received)
            && received <= packet.now;
        is_steady.then_some(received)
    }
}

/// Returns the monotonic times of the reader's last wakeup and of its first run after it; `None` if unknown.
fn reader(packet: &SlowPacket) -> Option<[u64; 2]> {
    let [woken, running] = packet.reader;
    // A task that was woken before it left its CPU goes on at once.
    let running = if running == 0 { woken } else { running };
    (woken != 0 && woken <= running && running <= packet.now).then_some([woken, running])
}

const fn distance(one: u64, other: u64) -> u64 {
    one.wrapping_sub(other).cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    const OFFSET: u64 = 1_700_000_000_000_000_000;

    /// Returns a packet with monotonic times, received 100 ns before `ip`.
    fn packet(offset: u64) -> SlowPacket {
        SlowPacket {
            timestamp: offset + 10_000,
            now: 90_000,
            offset,
            enqueued: 13_000,
            passed: [10_100, 11_000],
            flags: flag::RECORDED,
            ..SlowPacket::new_zeroed()
        }
    }

    fn monotonic(times: &Times, offset: u64) -> (u64, [Option<u64>; 3], u64) {
        let of = |time: UnixNanos| time.0 - offset;
        (of(times.start), times.layers.map(|time| time.map(of)), of(times.end))
    }

    #[test]
    fn all_times_are_in_the_current_wall_clock() {
        let offsets = Offsets::new(OFFSET);
        let times = offsets.times(&packet(OFFSET)).expect("times");
        assert_eq!(monotonic(&times, OFFSET), (10_000, [Some(10_100), Some(11_000), Some(13_000)], 90_000));
        assert_eq!(times.age(), 80_000);
    }

    #[test]
    fn a_step_of_the_clock_changes_no_duration() {
        for step in [-7_000_000_000_i64, -30_000, 30_000, 3_600_000_000_000] {
            let mut offsets = Offsets::new(OFFSET);
            let after = OFFSET.wrapping_add_signed(step);
            offsets.update(after, 50_000);
            // The packet was received before the step, and read after it.
            let times = offsets.times(&packet(OFFSET)).expect("times");
            assert_eq!(times.age(), 80_000, "{step}");
            assert_eq!(times.end, UnixNanos(after + 90_000));
            // Without a record the receive timestamp is ambiguous.
            let unrecorded = SlowPacket { flags: 0, ..packet(OFFSET) };
            assert_eq!(offsets.times(&unrecorded), None);
        }
    }

    #[test]
    fn sending_and_reader_are_known_if_they_are_plausible() {
        let offsets = Offsets::new(OFFSET);
        let times = |sent, ip, reader| {
            let packet = SlowPacket { sent, passed: [ip, 11_000], reader, ..packet(OFFSET) };
            let times = offsets.times(&packet).expect("times");
            let of = |time: UnixNanos| time.0 - OFFSET;
            (times.sent.map(of), times.layers[0].map(of), times.reader.map(|times| times.map(of)))
        };
        assert_eq!(times(9_000, 0, [50_000, 60_000]), (Some(9_000), None, Some([50_000, 60_000])));
        assert_eq!(times(10_001, 0, [50_000, 0]), (None, None, Some([50_000, 50_000])));
        assert_eq!(times(0, 10_100, [0, 0]), (None, Some(10_100), None));
        assert_eq!(times(9_000, 10_100, [0, 0]), (Some(9_000), Some(10_100), None));
        assert_eq!(times(0, 0, [50_000, 90_001]), (None, None, None));
    }

    #[test]
    fn a_forwarded_packet_begins_at_its_first_timestamp() {
        let offsets = Offsets::new(OFFSET);
        let times = |host, sent| {
            let times = offsets.times(&SlowPacket { host, sent, ..packet(OFFSET) }).expect("times");
            let of = |time: UnixNanos| time.0 - OFFSET;
            (of(times.received()), times.forwarded.map(of), times.sent.map(of), times.age())
        };
        assert_eq!(times(4_000, 5_500), (6_000, Some(6_000), Some(5_500), 80_000));
        // A sender cannot be later than the first timestamp.
        assert_eq!(times(4_000, 6_500), (6_000, Some(6_000), None, 80_000));
        assert_eq!(times(0, 9_000), (10_000, None, Some(9_000), 80_000));
        // Before the machine started.
        assert_eq!(times(10_001, 0), (10_000, None, None, 80_000));
        assert_eq!(times(LONGEST, 0), (10_000, None, None, 80_000));
    }

    #[test]
    fn an_unknown_step_makes_a_receive_timestamp_ambiguous() {
        // The packet was received in a wall clock that no update saw.
        let hour = 3_600_000_000_000;
        let offsets = Offsets::new(OFFSET + hour);
        assert_eq!(offsets.times(&packet(OFFSET)), None);
        assert_eq!(Offsets::new(OFFSET - hour).times(&packet(OFFSET)), None);
    }

    #[test]
    fn times_outside_of_the_packet_are_unknown() {
        let offsets = Offsets::new(OFFSET);
        let layers = |passed| offsets.times(&SlowPacket { passed, ..packet(OFFSET) }).expect("times").layers;
        assert_eq!(layers([9_999, 11_000])[..2], [None, Some(UnixNanos(OFFSET + 11_000))]);
        assert_eq!(layers([0, 13_001])[..2], [None, None]);
        assert_eq!(layers([12_000, 11_000])[..2], [None, Some(UnixNanos(OFFSET + 11_000))]);
    }
}
