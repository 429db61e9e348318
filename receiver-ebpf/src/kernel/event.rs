//! A packet at a hook: what every handler needs of it, read once.

use core::hint::black_box;

use undercurrent_ebpf::abi::loss::PacketLoss;

use super::{
    clock,
    fields::{SKB_TSTAMP, SKB_TSTAMP_TYPE},
    pointer::Pointer,
    sample,
};

/// A packet at a time.
#[derive(Clone, Copy)]
pub struct PacketEvent {
    /// Its receive timestamp, nanoseconds of the wall clock.
    pub stamp: u64,
    /// The time, nanoseconds of the monotonic clock.
    pub now: u64,
    /// How many packets it stands for.
    pub weight: u64,
    /// Whether it waited behind a segment that came late, so that its age is the network's.
    pub blocked: bool,
}

/// `None` of a packet that the sample leaves out.
pub type Sampled = Result<Option<PacketEvent>, PacketLoss>;

impl PacketEvent {
    /// The event of a packet with a stamp, at the time that [`sample::early`] gave, or now where it gave none.
    #[inline(always)]
    pub fn stamped(stamp: u64, early: u64) -> Sampled {
        if stamp == 0 {
            return Err(PacketLoss::NoStamp);
        }
        if early != 0 {
            return Ok(Some(Self { stamp, now: early, weight: 1, blocked: false }));
        }
        Ok(sample::weight(stamp).map(|weight| Self { stamp, now: clock::monotonic(), weight, blocked: false }))
    }

    /// The event of a `sk_buff` that was delivered on this host. `ip_local_deliver_finish` and `ip6_input_finish` have
    /// replaced a departure time by a receive timestamp (`skb_clear_delivery_time`, 5.18 and later; kernels before kept
    /// none that far).
    #[inline(always)]
    pub fn delivered(skb: impl Pointer) -> Sampled {
        Self::delivered_at(skb, sample::early())
    }

    /// The same at the time that [`sample::early`] gave.
    #[inline(always)]
    pub fn delivered_at(skb: impl Pointer, early: u64) -> Sampled {
        Self::stamped(skb.read(&SKB_TSTAMP), early)
    }

    /// The event of a `sk_buff` that may have come no further than its device, whose stamp may still be the sender's
    /// departure time.
    #[inline(always)]
    pub fn arrived(skb: impl Pointer) -> Sampled {
        let departing = departs(skb);
        // Opaque, or the compiler goes from one question to the other past what makes an event, and the kernel refuses to
        // read what was not written there.
        let stamp = if black_box(departing) { 0 } else { skb.read(&SKB_TSTAMP) };
        Self::stamped(stamp, sample::early()).map_err(|loss| if departing { PacketLoss::TransmitStamp } else { loss })
    }

    /// How long ago the packet was received, in nanoseconds, modulo 2^64.
    #[inline(always)]
    pub fn age(&self) -> u64 {
        clock::wall(self.now).wrapping_sub(self.stamp)
    }
}

/// Whether a `sk_buff`'s stamp is still the sender's departure time.
#[inline(always)]
pub fn departs(skb: impl Pointer) -> bool {
    skb.any(&SKB_TSTAMP_TYPE)
}
