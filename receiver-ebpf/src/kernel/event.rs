//! A packet at a hook: what every handler needs of it, read once.

use super::{
    clock,
    fields::{SKB_MONO_DELIVERY_TIME, SKB_TSTAMP, SKB_TSTAMP_TYPE},
};
use undercurrent_ebpf::abi::loss::Loss;

/// How long ago a packet was received.
pub struct PacketEvent {
    /// Wall clock minus receive timestamp, in nanoseconds, modulo 2^64.
    pub age: u64,
}

impl PacketEvent {
    /// The event of a packet stamped at `stamp`, nanoseconds of the wall clock.
    #[inline(always)]
    pub fn since(stamp: u64) -> Result<Self, Loss> {
        if stamp == 0 {
            return Err(Loss::NoStamp);
        }
        Ok(Self { age: clock::wall().wrapping_sub(stamp) })
    }

    /// The event of the packet in a typed `sk_buff` pointer.
    ///
    /// # Safety
    /// `skb` is a `struct sk_buff *` that the verifier knows as such.
    #[inline(always)]
    pub unsafe fn of(skb: *const u8) -> Result<Self, Loss> {
        // SAFETY: by the caller; both fields read as unset where the kernel lacks them.
        if unsafe { SKB_TSTAMP_TYPE.any(skb) || SKB_MONO_DELIVERY_TIME.any(skb) } {
            return Err(Loss::TransmitStamp);
        }
        if !SKB_TSTAMP.present() {
            return Err(Loss::NoStamp);
        }
        // SAFETY: by the caller, and the field is present.
        Self::since(unsafe { SKB_TSTAMP.load(skb) })
    }
}
