//! A packet at a hook, read once for all handlers.

use core::hint::cold_path;

use undercurrent_ebpf::abi::loss::PacketLoss;

use super::{
    clock,
    fields::{SKB_TSTAMP, SKB_TSTAMP_TYPE, SkBuff},
    pointer::{Access, Ptr},
    sample,
    workarounds::opaque,
};

/// A packet at a time.
#[derive(Clone, Copy)]
pub struct PacketEvent {
    /// The receive timestamp, nanoseconds of the wall clock.
    pub timestamp: u64,
    /// The time of the event, nanoseconds of the monotonic clock.
    pub now: u64,
    /// The number of packets that this one represents.
    pub weight: u64,
    /// True if the packet waited for a late segment, so that its age is the network's.
    pub blocked: bool,
}

/// An event; `None` for a packet outside of the sample.
pub type Sampled = Result<Option<PacketEvent>, PacketLoss>;

impl PacketEvent {
    /// The words of no event.
    pub const EMPTY: Self = Self { timestamp: 0, now: 0, weight: 0, blocked: false };

    /// Returns the event of a packet at the present time.
    #[inline(always)]
    pub fn now(timestamp: impl Fn() -> u64) -> Sampled {
        // A timestamp in each branch: a common one took three instructions more, to merge the results of both branches.
        if sample::takes_all() {
            let now = clock::monotonic();
            Self::at(timestamp(), now)
        } else {
            Self::sampled(timestamp())
        }
    }

    /// Returns the event of a packet with a timestamp. `early` is the result of [`sample::early`]; the clock is read here if
    /// that is zero.
    #[inline(always)]
    pub fn with_timestamp(timestamp: u64, early: u64) -> Sampled {
        if early == 0 { Self::sampled(timestamp) } else { Self::at(timestamp, early) }
    }

    #[inline(always)]
    fn at(timestamp: u64, now: u64) -> Sampled {
        if timestamp == 0 {
            cold_path();
            return Err(PacketLoss::NoTimestamp);
        }
        Ok(Some(Self { timestamp, now, weight: 1, blocked: false }))
    }

    /// Returns the event of a packet if it is in the sample. Reads the clock.
    #[inline(always)]
    fn sampled(timestamp: u64) -> Sampled {
        if timestamp == 0 {
            return Err(PacketLoss::NoTimestamp);
        }
        let event = |weight| Self { timestamp, now: clock::monotonic(), weight, blocked: false };
        Ok(sample::weight(timestamp).map(event))
    }

    /// Returns the event of a packet delivered on this host. `ip_local_deliver_finish` and `ip6_input_finish` have replaced
    /// a departure time by a receive timestamp (`skb_clear_delivery_time`, 5.18 and later; earlier kernels had cleared it).
    #[inline(always)]
    pub fn delivered<A: Access>(skb: Ptr<SkBuff, A>) -> Sampled {
        Self::now(|| skb.read(&SKB_TSTAMP))
    }

    /// Returns the event of a delivered packet; see [`Self::with_timestamp`].
    #[inline(always)]
    pub fn delivered_at<A: Access>(skb: Ptr<SkBuff, A>, early: u64) -> Sampled {
        Self::with_timestamp(skb.read(&SKB_TSTAMP), early)
    }

    /// Returns the event of a packet that may not be delivered yet: its timestamp may be the sender's departure time.
    #[inline(always)]
    pub fn arrived<A: Access>(skb: Ptr<SkBuff, A>) -> Sampled {
        let by_sender = has_departure_time(skb);
        let timestamp = if opaque(by_sender) { 0 } else { skb.read(&SKB_TSTAMP) };
        let event = Self::with_timestamp(timestamp, sample::early());
        event.map_err(|loss| if by_sender { PacketLoss::TransmitTimestamp } else { loss })
    }

    /// Returns the nanoseconds since the receive timestamp, modulo 2^64.
    #[inline(always)]
    pub fn age(&self) -> u64 {
        clock::wall(self.now).wrapping_sub(self.timestamp)
    }
}

/// Returns true if a packet's timestamp is the sender's departure time.
#[inline(always)]
pub fn has_departure_time<A: Access>(skb: Ptr<SkBuff, A>) -> bool {
    skb.any(&SKB_TSTAMP_TYPE)
}
