//! Stalls: several packets that waited for one process at one time.

use super::Candidate;

/// The fewest packets of a stall.
const FEWEST: usize = 4;

/// Groups packets. A group has one packet, or all packets of a stall with the longest wait first.
pub fn groups(mut candidates: Vec<Candidate>) -> Vec<Vec<Candidate>> {
    candidates.sort_by_key(|candidate| (candidate.key(), candidate.times.end));
    let mut groups: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates {
        match groups.last_mut().filter(|group| candidate.waited_with(&group[0])) {
            Some(group) => group.push(candidate),
            None => groups.push(vec![candidate]),
        }
    }
    let mut split = Vec::new();
    for mut group in groups {
        if group.len() < FEWEST {
            split.extend(group.into_iter().map(|candidate| vec![candidate]));
        } else {
            group.sort_by_key(|candidate| candidate.times.start);
            split.push(group);
        }
    }
    split.sort_by_key(|group| group[0].times.end);
    split
}

impl Candidate {
    /// Returns the reader, which all packets of a stall have in common.
    const fn key(&self) -> (bool, u32, u16) {
        (self.is_uniform(), self.event.process, self.event.slot)
    }

    /// Returns true if the packet waited for the reader of another packet when that was read.
    fn waited_with(&self, first: &Self) -> bool {
        !self.is_uniform() && self.event.process != 0 && self.key() == first.key() && self.times.start < first.times.end
    }
}

#[cfg(test)]
mod tests {
    use undercurrent_ebpf::abi::{
        latency::{IpVersion, Layer, ReceivePoint, Transport},
        slow::{SlowPacket, flag},
    };
    use zerocopy::FromZeros as _;

    use super::{super::times::Times, *};
    use crate::telemetry::UnixNanos;

    fn candidate(process: u32, start: u64, end: u64) -> Candidate {
        Candidate {
            event: SlowPacket { process, ..SlowPacket::new_zeroed() },
            point: ReceivePoint::of(Layer::SocketRead, Transport::Tcp, IpVersion::Ipv4),
            times: Times {
                sent: None,
                forwarded: None,
                start: UnixNanos(start),
                layers: [None; 3],
                end: UnixNanos(end),
                reader: None,
            },
            parent: None,
        }
    }

    fn starts(groups: &[Vec<Candidate>]) -> Vec<Vec<u64>> {
        groups.iter().map(|group| group.iter().map(|candidate| candidate.times.start.0).collect()).collect()
    }

    #[test]
    fn packets_that_waited_together_are_one_stall() {
        let stall = [(10, 100), (20, 101), (5, 102), (30, 103), (99, 104)];
        let candidates = stall.map(|(start, end)| candidate(7, start, end));
        assert_eq!(starts(&groups(candidates.to_vec())), [[5, 10, 20, 30, 99]]);
    }

    #[test]
    fn other_readers_later_packets_and_small_numbers_are_no_stall() {
        let mut candidates = vec![candidate(7, 10, 100), candidate(8, 20, 101), candidate(7, 30, 102)];
        // This packet arrived after the first was read.
        candidates.push(candidate(7, 101, 200));
        assert_eq!(starts(&groups(candidates)), [[10], [20], [30], [101]]);
        let unread = (0..5).map(|n| candidate(0, n, 100)).collect();
        assert_eq!(groups(unread).len(), 5, "packets without a reader");
        let mut uniform: Vec<_> = (0..5).map(|n| candidate(7, n, 100)).collect();
        uniform.iter_mut().for_each(|candidate| candidate.event.flags = flag::UNIFORM);
        assert_eq!(groups(uniform).len(), 5);
    }
}
