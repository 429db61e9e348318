//! Which TCP reads count as blocked, against a model of a receiver whose sequence numbers do not wrap around.

use std::collections::BTreeMap;

use proptest::prelude::*;
use undercurrent_ebpf::abi::head_of_line::{Blocking, end, is_after};

/// A receiving end: positions in the stream, from zero on.
#[derive(Default)]
struct Receiver {
    /// The next position in order.
    next: u64,
    /// Up to where the application has read.
    copied: u64,
    /// Segments that wait for a missing one: the end of each by its beginning.
    queue: BTreeMap<u64, u64>,
    /// Every segment that ever waited.
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

    /// Whether the last byte that was read had waited.
    fn read_what_waited(&self) -> bool {
        self.late.iter().any(|(from, to)| (from + 1..=*to).contains(&self.copied))
    }

    /// What the kernel would say of it, where the stream begins at a sequence number.
    fn judge(&self, kept: Blocking, first: u32) -> (Blocking, bool) {
        let number = |position: u64| first.wrapping_add(position as u32);
        let last = self.queue.values().last().map(|position| number(*position));
        kept.after(self.late.len() as u32, number(self.copied), || end(number(self.next), last))
    }
}

/// A segment's size, how many others overtake it, and the share of what is there that is read after it came, where it is,
/// with whether that read is in the sample.
type Step = (u64, usize, Option<(u64, bool)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let late = prop_oneof![4 => Just(0_usize), 1 => 1..4_usize];
    let read = prop::option::of((1..=4_u64, prop::bool::weighted(0.8)));
    prop::collection::vec((1..1_u64 << 24, late, read), 1..64)
}

/// Segments in the order in which they arrive.
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
    ) {
        let (mut receiver, mut kept) = (Receiver::default(), Blocking::default());
        let (mut known, mut until) = (0, None);
        for (segment, (_, _, read)) in arrivals(&steps).into_iter().zip(&steps) {
            receiver.arrive(segment);
            let Some((quarters, sampled)) = read.filter(|_| receiver.next > receiver.copied) else { continue };
            receiver.copied += ((receiver.next - receiver.copied) * quarters / 4).max(1);
            if !sampled {
                continue;
            }
            if receiver.late.len() > known {
                known = receiver.late.len();
                until = Some(receiver.queue.values().last().copied().unwrap_or(receiver.next));
            }
            let blocked;
            (kept, blocked) = receiver.judge(kept, first);
            prop_assert!(blocked || !receiver.read_what_waited(), "up to {}: {:?}", receiver.copied, receiver.late);
            prop_assert_eq!(blocked, until.is_some_and(|until| receiver.copied <= until), "up to {}", receiver.copied);
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
fn what_is_over_stays_over_however_far_the_stream_goes() {
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
fn where_the_end_is_not_known_the_next_read_asks_again() {
    let (kept, blocked) = Blocking::default().after(1, 100, || None);
    assert_eq!((kept, blocked), (Blocking::default(), true));
    let (kept, _) = kept.after(1, 100, || Some(200));
    assert_eq!(kept.after(1, 200, || None), (kept, true));
}
