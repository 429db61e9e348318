//! The search for the `traceparent` of HTTP/1 in the payload of a selected TCP packet.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use undercurrent_ebpf::abi::{
    http1::{self, KINDS, START},
    slow::{PAYLOAD, VALUE},
};

use super::{SLOW_SCRATCH, Scratch};
use crate::kernel::payload;

/// Bytes of payload after which a search can end. The verifier keeps a state for each end until it has verified all of them.
const CHUNK: usize = 64;

/// The state of a search.
#[repr(C)]
pub struct Search {
    /// The index of the last byte of each kind.
    last: [u32; KINDS],
    /// The entry after each byte of a chunk.
    entries: [u8; CHUNK],
}

/// Returns the number of bytes to pass with an event: those of the payload, or of the value of its `traceparent`.
#[inline(always)]
pub fn passed(length: u32) -> u32 {
    if length == 0 || !payload::is_searched() { length } else { find_traceparent(length) }
}

/// Replaces the payload in the scratch buffer by the value of its `traceparent`, and returns the value's length.
///
/// The verifier follows a global function once for a program. Others it follows again for each path to their call.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_traceparent(length: u32) -> u32 {
    // A constant to the verifier, which also follows functions that are never called (before 6.8).
    if !payload::is_searched() {
        return 0;
    }
    let Some(scratch) = SLOW_SCRATCH.get_ptr_mut(0) else { return 0 };
    // SAFETY: the scratch buffer of this CPU for TCP. The programs of TCP do not interrupt each other.
    let Scratch { payload, search, .. } = unsafe { &mut *scratch };
    let entry = search.run(payload, length);
    let Some(place) = http1::value(entry, &search.last) else { return 0 };
    let length = (place.end - place.start).min(VALUE as u32);
    // SAFETY: the masked index is within the array.
    let value = unsafe { payload.as_ptr().add(place.start as usize & (PAYLOAD - 1)) };
    // SAFETY: the buffer has more than `VALUE` bytes. The helper checks the address of the value, and copies forward.
    let failed = unsafe { bpf_probe_read_kernel(payload.as_mut_ptr().cast(), length, value.cast()) } != 0;
    if failed { 0 } else { length }
}

impl Search {
    /// Returns the entry after the first `length` bytes.
    #[inline(always)]
    fn run(&mut self, payload: &[u8; PAYLOAD], length: u32) -> u8 {
        let Self { last, entries } = self;
        for index in last.iter_mut() {
            // SAFETY: a reference. Volatile, because the compiler would call `memset`.
            unsafe { core::ptr::write_volatile(index, 0) };
        }
        let (mut entry, mut chunk) = (START, 0);
        while chunk < PAYLOAD && chunk < length as usize {
            let mut index = 0;
            while index < CHUNK {
                // SAFETY: within the arrays: a chunk ends at or before `PAYLOAD`, and a kind is less than `KINDS`.
                unsafe {
                    entry = http1::next(entry, *payload.get_unchecked(chunk + index));
                    *last.get_unchecked_mut(http1::kind(entry)) = (chunk + index) as u32;
                    *entries.get_unchecked_mut(index) = entry;
                }
                index += 1;
            }
            chunk += CHUNK;
        }
        // Bytes behind the end change neither this entry nor the place of a complete field.
        entries[(length as usize - 1) & (CHUNK - 1)]
    }
}
