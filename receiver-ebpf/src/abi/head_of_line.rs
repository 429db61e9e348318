//! Head-of-line blocking: what TCP received out of order waits in the kernel until the missing segment arrives. Its age at
//! the read says how long the network took.
//!
//! A read is told by how far it got, as the netstacklat paper has it (section 4.4): everything up to the end of what came
//! out of order, as far as is known, counts as blocked. That is too much at times (what was in the socket's queue before
//! it, and the late segment itself) and never too little.

/// The largest window that TCP can offer: sixteen bits, shifted by fourteen (RFC 7323).
const LARGEST_WINDOW: u32 = 0xffff << 14;

/// Whether a sequence number comes after another one; numbers wrap around.
#[must_use]
#[inline(always)]
pub const fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// Where what came out of order ends, from the next number that is expected in order, and the end of the last segment in
/// the out-of-order queue; that is `None` where the queue is empty, since everything is in order then. `None` where no
/// window reaches that far: the segment went away while it was looked at.
#[must_use]
#[inline(always)]
pub const fn end(next: u32, last: Option<u32>) -> Option<u32> {
    match last {
        None => Some(next),
        Some(end) if end.wrapping_sub(next) <= LARGEST_WINDOW => Some(end),
        Some(_) => None,
    }
}

/// What is kept of a connection between two reads, in a word: from the lowest bit on, whether reads are blocked; 31 bits of
/// how many segments had come out of order; the sequence number up to which they are blocked. Zero before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocking(pub u64);

impl Blocking {
    /// A connection of which so many segments came out of order, whose reads are blocked up to a sequence number.
    const fn until(count: u32, end: u32) -> Self {
        Self((end as u64) << 32 | Self::seen(count) as u64 | 1)
    }

    /// One whose reads are not blocked any more.
    const fn over(count: u32) -> Self {
        Self(Self::seen(count) as u64)
    }

    const fn seen(count: u32) -> u32 {
        count << 1
    }

    /// What is kept after a read, and whether that was blocked. `count` segments have come out of order until now, `read`
    /// is the sequence number after the last byte that was read, and [`end`] says where the segments end: it is asked
    /// only where more have come.
    #[must_use]
    #[inline(always)]
    pub fn after(self, count: u32, read: u32, end: impl FnOnce() -> Option<u32>) -> (Self, bool) {
        if self.0 as u32 & !1 != Self::seen(count) {
            // Where nothing says how far they reach, the next read asks again.
            return (end().map_or(self, |end| Self::until(count, end)), true);
        }
        if self.0 & 1 == 0 {
            return (self, false);
        }
        if is_after(read, (self.0 >> 32) as u32) { (Self::over(count), false) } else { (self, true) }
    }

    /// The same of what has just arrived in the socket's queue, up to a sequence number: what was blocked before it may still
    /// wait there for its reader, as long as a window reaches so far back.
    #[must_use]
    #[inline(always)]
    pub fn after_arrival(self, count: u32, arrived: u32, end: impl FnOnce() -> Option<u32>) -> (Self, bool) {
        let (after, blocked) = self.after(count, arrived, end);
        let waits = !blocked && arrived.wrapping_sub((self.0 >> 32) as u32) <= LARGEST_WINDOW;
        (if waits { self } else { after }, blocked)
    }
}
