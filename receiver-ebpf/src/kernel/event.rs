//! A packet at a hook: what every handler needs of it, read once.

use undercurrent_ebpf::abi::loss::PacketLoss;

use super::{
    clock,
    fields::{SKB_TSTAMP, SKB_TSTAMP_TYPE},
};

/// How long ago a packet was received.
pub struct PacketEvent {
    /// Wall clock minus receive timestamp, in nanoseconds, modulo 2^64.
    pub age: u64,
}

impl PacketEvent {
    /// The event at `now` of a packet stamped at `stamp`, both nanoseconds of the wall clock.
    #[inline(always)]
    pub fn since(stamp: u64, now: u64) -> Result<Self, PacketLoss> {
        if stamp == 0 { Err(PacketLoss::NoStamp) } else { Ok(Self { age: now.wrapping_sub(stamp) }) }
    }

    /// The event at `now` of a packet that was delivered on this host. `ip_local_deliver_finish` and
    /// `ip6_input_finish` have replaced a departure time by a receive timestamp (`skb_clear_delivery_time`, 5.18 and
    /// later; kernels before kept none that far).
    ///
    /// # Safety
    /// `skb` is a `struct sk_buff *` that the verifier knows as such.
    #[inline(always)]
    pub unsafe fn delivered(skb: *const u8, now: u64) -> Result<Self, PacketLoss> {
        // SAFETY: by the caller.
        Self::since(unsafe { SKB_TSTAMP.load(skb) }, now)
    }

    /// The event of a packet whose stamp may still be the sender's departure time: such a packet takes no clock.
    ///
    /// # Safety
    /// As for [`Self::delivered`].
    #[inline(always)]
    pub unsafe fn undelivered(skb: *const u8) -> Result<Self, PacketLoss> {
        // SAFETY: by the caller.
        if unsafe { SKB_TSTAMP_TYPE.any(skb) } {
            return Err(PacketLoss::TransmitStamp);
        }
        // SAFETY: by the caller.
        unsafe { Self::delivered(skb, clock::wall()) }
    }
}
