//! Head-of-line blocking: data that TCP receives out of order waits in the kernel until the missing segment arrives. Its age at
//! the read is mostly the network's time.
//!
//! As in the netstacklat paper (section 4.4), a read is blocked if it ends at or before the highest known out-of-order
//! sequence number. This includes too much at times, namely the late segment and data that was queued before it, and never
//! too little.

/// The largest window of TCP: sixteen bits, shifted by fourteen (RFC 7323).
const LARGEST_WINDOW: u32 = 0xffff << 14;

/// Returns true if a sequence number comes after another one, modulo 2^32.
#[must_use]
#[inline(always)]
pub const fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// Returns the sequence number after the last out-of-order data. `next` is the next number expected in order; `last` is the end of the
/// last segment in the out-of-order queue, `None` if the queue is empty.
///
/// Returns `None` if the result is beyond the largest window: the segment was freed during the read.
#[must_use]
#[inline(always)]
pub const fn end(next: u32, last: Option<u32>) -> Option<u32> {
    match last {
        None => Some(next),
        Some(end) if end.wrapping_sub(next) <= LARGEST_WINDOW => Some(end),
        Some(_) => None,
    }
}

/// State of a connection between two reads, in a word. Bit 0: reads are blocked. Bits 1 to 31: the number of out-of-order
/// segments at the last read. Bits 32 to 63: the last blocked sequence number. Zero before the first read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocking(pub u64);

impl Blocking {
    /// Returns the state after `count` out-of-order segments, with reads blocked up to `end`.
    const fn until(count: u32, end: u32) -> Self {
        Self((end as u64) << 32 | Self::seen(count) as u64 | 1)
    }

    /// Returns the state after `count` out-of-order segments, with reads no longer blocked.
    const fn over(count: u32) -> Self {
        Self(Self::seen(count) as u64)
    }

    const fn seen(count: u32) -> u32 {
        count << 1
    }

    /// Returns the state after a read, and true if the read was blocked. `count` is the number of out-of-order segments so
    /// far, `read` the sequence number after the last byte read. `end` returns the result of [`end`]; it runs only if
    /// `count` has changed.
    #[must_use]
    #[inline(always)]
    pub fn after(self, count: u32, read: u32, end: impl FnOnce() -> Option<u32>) -> (Self, bool) {
        if self.0 as u32 & !1 != Self::seen(count) {
            // Without an end the state stays, so the next read calls `end` again.
            return (end().map_or(self, |end| Self::until(count, end)), true);
        }
        if self.0 & 1 == 0 {
            return (self, false);
        }
        if is_after(read, (self.0 >> 32) as u32) { (Self::over(count), false) } else { (self, true) }
    }

    /// Returns the state after an arrival in the socket's queue, and true if the data was blocked. `arrived` is the sequence
    /// number after the data. Blocked data that arrived earlier may still wait for its reader, so the state stays blocked
    /// within the largest window.
    #[must_use]
    #[inline(always)]
    pub fn after_arrival(self, count: u32, arrived: u32, end: impl FnOnce() -> Option<u32>) -> (Self, bool) {
        let (after, blocked) = self.after(count, arrived, end);
        let waits = !blocked && arrived.wrapping_sub((self.0 >> 32) as u32) <= LARGEST_WINDOW;
        (if waits { self } else { after }, blocked)
    }
}
