//! A packet at a hook: what every handler needs of it, read once.

use undercurrent_ebpf::abi::loss::PacketLoss;

use super::{
    clock,
    fields::{SKB_TSTAMP, SKB_TSTAMP_TYPE},
    sample,
};

/// A packet at a time.
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

    /// The event of a packet that was delivered on this host. `ip_local_deliver_finish` and `ip6_input_finish` have
    /// replaced a departure time by a receive timestamp (`skb_clear_delivery_time`, 5.18 and later; kernels before kept
    /// none that far).
    ///
    /// # Safety
    /// `skb` is a `struct sk_buff *` that the verifier knows as such.
    #[inline(always)]
    pub unsafe fn delivered(skb: *const u8, early: u64) -> Sampled {
        // SAFETY: by the caller.
        Self::stamped(unsafe { SKB_TSTAMP.load(skb) }, early)
    }

    /// The event of a packet behind a pointer whose type the verifier does not know, whose stamp may still be the sender's
    /// departure time: such a packet takes no clock.
    #[inline(always)]
    pub fn probed(skb: *const u8) -> Sampled {
        if SKB_TSTAMP_TYPE.probe_any(skb) {
            return Err(PacketLoss::TransmitStamp);
        }
        Self::stamped(SKB_TSTAMP.probe(skb), sample::early())
    }

    /// How long ago the packet was received, in nanoseconds, modulo 2^64.
    #[inline(always)]
    pub fn age(&self) -> u64 {
        clock::wall(self.now).wrapping_sub(self.stamp)
    }
}

/// Whether a packet's stamp is still the sender's departure time.
///
/// # Safety
/// `skb` is a `struct sk_buff *` that the verifier knows as such.
#[inline(always)]
pub unsafe fn departs(skb: *const u8) -> bool {
    // SAFETY: by the caller.
    unsafe { SKB_TSTAMP_TYPE.any(skb) }
}
