//! Tables of waiting packets, indexed by bits of a hash of the packet's timestamp or address (its mix).
//!
//! An entry has further bits of the mix above [`TIME`] bits of the monotonic clock, in nanoseconds. A later packet
//! replaces an earlier one at an equal index, and the wait of the earlier one is lost. A table may have
//! [several ways](super::transmit::WAYS) for an index.

/// Number of entries.
pub const ENTRIES: usize = 1 << INDEX;
/// Bits of an entry for the time: eighteen minutes.
pub const TIME: u32 = 40;
/// Bits of a mix for the index.
const INDEX: u32 = 14;

/// Hashes a timestamp by multiplication with the golden ratio (Knuth, The Art of Computer Programming, 6.4).
#[must_use]
#[inline(always)]
pub const fn mix(timestamp: u64) -> u64 {
    timestamp.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Hashes numbers with patterns that one multiplication keeps: addresses of packets, and timestamps at equal distances.
#[must_use]
#[inline(always)]
pub const fn mix_twice(number: u64) -> u64 {
    let once = mix(number);
    mix(once ^ once >> 32)
}

/// Returns the index of a mix.
#[must_use]
#[inline(always)]
pub const fn index(mix: u64) -> u32 {
    (mix >> (64 - INDEX)) as u32
}

/// Returns the entry of a packet at a time, truncated to the entry's bits.
#[must_use]
#[inline(always)]
pub const fn entry(mix: u64, time: u64) -> u64 {
    mix << INDEX >> TIME << TIME | (time & !(u64::MAX << TIME))
}

/// Returns true if an entry belongs to the packet with this mix.
#[must_use]
#[inline(always)]
pub const fn is_of(entry: u64, mix: u64) -> bool {
    entry != 0 && (self::entry(mix, 0) ^ entry) >> TIME == 0
}

/// Returns the nanoseconds since an entry, modulo 2^[`TIME`].
#[must_use]
#[inline(always)]
pub const fn elapsed(entry: u64, now: u64) -> u64 {
    now.wrapping_sub(entry) & !(u64::MAX << TIME)
}

/// Returns the nanoseconds since an entry; `None` if it belongs to another packet.
#[must_use]
#[inline(always)]
pub const fn since(entry: u64, mix: u64, now: u64) -> Option<u64> {
    if is_of(entry, mix) { Some(elapsed(entry, now)) } else { None }
}
