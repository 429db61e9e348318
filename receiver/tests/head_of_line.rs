//! Compares the detection of blocked TCP reads with a model of a receiver. The model's sequence numbers do not
//! wrap around.

use std::collections::BTreeMap;

use proptest::prelude::*;
use undercurrent_ebpf::abi::head_of_line::{Blocking, end, is_after};

/// A model of a receiver. Positions in its stream start at zero.
#[derive(Default)]
struct Receiver {
    /// The next position in order.
    next: u64,
    /// The end of the data that the application has read.
    copied: u64,
    /// Segments that wait for a missing segment: end positions by start positions.
    queue: BTreeMap<u64, u64>,
    /// Every segment that waited.
    late: Vec<(u64, u64)>,
}

impl Receiver {
    fn arrive(&mut self, (from, to): (u64, u64)) {
        if from == self.next {
            self.next = to;
            while let Some(to) = self.queue.remove(&self.next) {
                self.next = to;
            }
        } else {
            self.queue.insert(from, to);
            self.late.push((from, to));
        }
    }

    /// Returns true if the last byte before a position was in a segment that waited.
    fn had_waited(&self, position: u64) -> bool {
        self.late.iter().any(|(from, to)| (from + 1..=*to).contains(&position))
    }
}

/// The detection for a receiver with an initial sequence number.
struct Judge {
    first: u32,
    kept: Blocking,
    /// The number of known waiting segments, and the end of the last one.
    known: usize,
    until: Option<u64>,
}

impl Judge {
    /// Returns the detected and the expected result for data up to a position, either read or arrived.
    fn blocked(&mut self, receiver: &Receiver, read: bool, position: u64) -> (bool, bool) {
        if receiver.late.len() > self.known {
            self.known = receiver.late.len();
            self.until = Some(receiver.queue.values().last().copied().unwrap_or(receiver.next));
        }
        let number = |position: u64| self.first.wrapping_add(position as u32);
        let last = receiver.queue.values().last().map(|position| number(*position));
        let (count, end) = (receiver.late.len() as u32, || end(number(receiver.next), last));
        let (kept, blocked) = if read {
            self.kept.after(count, number(position), end)
        } else {
            self.kept.after_arrival(count, number(position), end)
        };
        self.kept = kept;
        (blocked, self.until.is_some_and(|until| position <= until))
    }
}

/// A segment's size, the number of segments that overtake it, and an optional read after its arrival: the share of
/// the available data, and true if the sample includes the read.
type Step = (u64, usize, Option<(u64, bool)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let late = prop_oneof![4 => Just(0_usize), 1 => 1..4_usize];
    let read = prop::option::of((1..=4_u64, prop::bool::weighted(0.8)));
    prop::collection::vec((1..1_u64 << 24, late, read), 1..64)
}

/// Returns the segments in the order of arrival.
fn arrivals(steps: &[Step]) -> Vec<(u64, u64)> {
    let mut position = 0;
    let segments = steps.iter().map(|(size, _, _)| {
        position += size;
        (position - size, position)
    });
    let mut arrivals: Vec<_> = segments.zip(steps).enumerate().collect();
    arrivals.sort_by_key(|(index, (_, (_, late, _)))| 2 * (index + late) + usize::from(*late > 0));
    arrivals.into_iter().map(|(_, (segment, _))| segment).collect()
}

proptest! {
    #[test]
    fn what_waited_is_blocked_and_what_comes_after_it_is_not(
        first in prop_oneof![any::<u32>(), u32::MAX - (1 << 26)..=u32::MAX],
        steps in steps(),
        arrivals_are_seen: bool,
    ) {
        let mut receiver = Receiver::default();
        let mut judge = Judge { first, kept: Blocking::default(), known: 0, until: None };
        for (segment, (_, _, read)) in arrivals(&steps).into_iter().zip(&steps) {
            let before = receiver.next;
            receiver.arrive(segment);
            if arrivals_are_seen && receiver.next > before {
                let (blocked, expected) = judge.blocked(&receiver, false, receiver.next);
                prop_assert!(blocked || !receiver.had_waited(receiver.next), "{}: {:?}", receiver.next, receiver.late);
                prop_assert_eq!(blocked, expected, "arrived up to {}", receiver.next);
            }
            let Some((quarters, sampled)) = read.filter(|_| receiver.next > receiver.copied) else { continue };
            receiver.copied += ((receiver.next - receiver.copied) * quarters / 4).max(1);
            if !sampled {
                continue;
            }
            let (blocked, expected) = judge.blocked(&receiver, true, receiver.copied);
            prop_assert!(blocked || !receiver.had_waited(receiver.copied), "{}: {:?}", receiver.copied, receiver.late);
            prop_assert_eq!(blocked, expected, "read up to {}", receiver.copied);
        }
    }

    #[test]
    fn an_end_that_no_window_reaches_is_none(next: u32, ahead: u32) {
        let last = next.wrapping_add(ahead);
        prop_assert_eq!(end(next, Some(last)), (ahead <= 65_535 << 14).then_some(last));
        prop_assert_eq!(end(next, None), Some(next));
    }

    #[test]
    fn order_is_that_of_the_shorter_way(one: u32, ahead in 1..1_u32 << 31) {
        let other = one.wrapping_add(ahead);
        prop_assert!(is_after(other, one) && !is_after(one, other) && !is_after(one, one));
    }
}

#[test]
fn an_ended_blockage_stays_ended_when_sequence_numbers_wrap() {
    let (kept, blocked) = Blocking::default().after(1, 100, || Some(200));
    assert!(blocked);
    let (over, blocked) = kept.after(1, 201, || None);
    assert!(!blocked);
    for read in [0x8000_0000_u32, 0xffff_ffff, 0, 150] {
        assert_eq!(over.after(1, read, || None), (over, false), "up to {read}");
    }
    assert_eq!(over.after(2, 150, || Some(160)).0, Blocking::default().after(2, 150, || Some(160)).0);
}

#[test]
fn an_unknown_end_is_looked_up_at_the_next_read() {
    let (kept, blocked) = Blocking::default().after(1, 100, || None);
    assert_eq!((kept, blocked), (Blocking::default(), true));
    let (kept, _) = kept.after(1, 100, || Some(200));
    assert_eq!(kept.after(1, 200, || None), (kept, true));
}

#[test]
fn an_arrival_does_not_end_a_blockage_with_unread_data() {
    let (kept, blocked) = Blocking::default().after_arrival(1, 200, || Some(200));
    assert!(blocked);
    assert_eq!(kept.after_arrival(1, 300, || None), (kept, false));
    assert_eq!(kept.after(1, 150, || None), (kept, true));
    // Without reads, sequence numbers wrap around.
    let (over, blocked) = kept.after_arrival(1, 0x4000_0000, || None);
    assert!(!blocked);
    assert_eq!(over.after_arrival(1, 150, || None), (over, false));
}
