//! Parses pages of ftrace's ring buffer from `trace_pipe_raw` (`header_page` and `header_event` below `events/`).

/// Bytes of the page's header: the time of the first event, and the length of the events.
const HEADER: usize = 16;
/// The bits of the second word with the length.
const LENGTH: u64 = 0xf_ffff;
/// Set if events were lost before this page.
const MISSED: u64 = 1 << 31;
/// The number of bits of an event's time in its first word.
const DELTA_BITS: u32 = 27;

/// Types of entries that are no events of a tracer.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Calls `event` with the time and the bytes of every event of a page.
///
/// # Panics
/// If the kernel lost events before this page.
pub fn events(page: &[u8], mut event: impl FnMut(u64, &[u8])) {
    let long = |at: usize| u64::from_ne_bytes(page[at..at + 8].try_into().unwrap());
    let (mut time, commit) = (long(0), long(8));
    assert_eq!(commit & MISSED, 0, "ftrace lost events: its buffer is too small");
    let data = &page[HEADER..][..usize::try_from(commit & LENGTH).unwrap()];
    let word = |at: usize| u32::from_ne_bytes(data[at..at + 4].try_into().unwrap());
    let mut at = 0;
    while at + 4 <= data.len() {
        let (kind, delta) = (word(at) & 31, u64::from(word(at) >> 5));
        let further = |at: usize| u64::from(word(at + 4)) << DELTA_BITS;
        match kind {
            PADDING if delta == 0 => return,
            PADDING => at += 4 + word(at + 4) as usize,
            TIME_EXTEND => {
                time += further(at) + delta;
                at += 8;
            }
            TIME_STAMP => {
                // The timestamp has 59 bits; the upper five bits stay.
                time = (time >> 59 << 59) | (further(at) + delta);
                at += 8;
            }
            _ => {
                time += delta;
                let (start, length) =
                    if kind == 0 { (at + 8, word(at + 4) as usize - 4) } else { (at + 4, kind as usize * 4) };
                event(time, &data[start..start + length]);
                at = start + length;
            }
        }
    }
}
