//! HTTP/2, and therefore gRPC: the header blocks of a payload (RFC 9113, sections 4 and 6).
//!
//! The payload begins with the connection preface or with a frame. A payload that begins within a frame is rejected,
//! because the observer cannot find the next frame. The first header block that names the field has the result;
//! later blocks belong to other streams. A CONTINUATION frame without the start of its header block is skipped: the
//! block may be divided within a field.

use std::borrow::Cow;

use super::{Fields, SpanContext};

mod hpack;
mod huffman;
#[cfg(test)]
mod tests;

/// The connection preface of a client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's header in bytes.
const FRAME_HEADER: usize = 9;
/// The default maximum length of a frame's payload in bytes. Few clients send longer frames with headers.
const MAX_LENGTH: usize = 1 << 14;

// Types of frames (RFC 9113, section 6).
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PUSH_PROMISE: u8 = 0x5;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;

// Flags of frames with header blocks (RFC 9113, section 6.2).
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const HAS_PRIORITY: u8 = 0x20;

/// Returns the context of the first header block in a payload that names the field.
pub(super) fn find(payload: &[u8]) -> Option<SpanContext> {
    let mut rest = payload.strip_prefix(PREFACE).unwrap_or(payload);
    loop {
        let frame = Frame::take(&mut rest)?;
        if frame.kind == HEADERS {
            let fields = read_block(&frame, &mut rest)?;
            if fields.count > 0 {
                return fields.context();
            }
        }
    }
}

/// Returns the fields of the header block that begins with a frame, and takes its CONTINUATION frames.
fn read_block(headers: &Frame<'_>, rest: &mut &[u8]) -> Option<Fields> {
    let mut block = Cow::Borrowed(headers.fragment()?);
    let (mut is_cut, mut ends) = (headers.is_cut(), headers.ends_block());
    while !ends && !is_cut {
        if rest.len() < FRAME_HEADER {
            is_cut = true;
            break;
        }
        // No other frame may be between the frames of a header block.
        let is_next = |frame: &Frame<'_>| frame.kind == CONTINUATION && frame.stream == headers.stream;
        let next = Frame::take(rest).filter(is_next)?;
        block.to_mut().extend_from_slice(next.payload);
        (is_cut, ends) = (next.is_cut(), next.ends_block());
    }
    hpack::fields(&block, is_cut)
}

/// A frame. Its payload is shorter than its length if the packet's payload ends before the frame.
struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    length: usize,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes the next frame. Returns `None` if the bytes contain no complete frame header, or if no frame has this
    /// header.
    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (&[high, middle, low, kind, flags, a, b, c, d], rest) = bytes.split_first_chunk::<FRAME_HEADER>()?;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        let frame = Self { kind, flags, stream: u32::from_be_bytes([a, b, c, d]), length, payload };
        *bytes = rest;
        frame.is_plausible().then_some(frame)
    }

    /// Returns true if length and stream are valid for the type of the frame. Types of extensions are rejected: in
    /// payloads without HTTP/2, random bytes are more frequent than extensions.
    fn is_plausible(&self) -> bool {
        let length = self.length;
        let (is_valid, has_stream) = match self.kind {
            DATA | HEADERS | CONTINUATION => (true, true),
            PRIORITY => (length == 5, true),
            RST_STREAM => (length == 4, true),
            SETTINGS => (length.is_multiple_of(6), false),
            PUSH_PROMISE => (length >= 4, true),
            PING => (length == 8, false),
            GOAWAY => (length >= 8, false),
            WINDOW_UPDATE => (length == 4, self.stream != 0),
            _ => (false, false),
        };
        // Senders leave the reserved bit unset.
        let is_stream = self.stream.leading_zeros() > 0;
        is_valid && is_stream && has_stream == (self.stream != 0) && length <= MAX_LENGTH
    }

    fn is_cut(&self) -> bool {
        self.payload.len() < self.length
    }

    /// Returns true for the last frame of a header block.
    fn ends_block(&self) -> bool {
        self.flags & END_HEADERS != 0
    }

    /// Returns the fragment of a header block in a HEADERS frame, without padding and priority.
    fn fragment(&self) -> Option<&'a [u8]> {
        let (mut fragment, mut length) = (self.payload, self.length);
        if self.flags & PADDED != 0 {
            let (&padding, rest) = fragment.split_first()?;
            fragment = rest;
            length = length.checked_sub(1 + usize::from(padding))?;
        }
        if self.flags & HAS_PRIORITY != 0 {
            fragment = fragment.get(5..)?;
            length = length.checked_sub(5)?;
        }
        Some(&fragment[..length.min(fragment.len())])
    }
}
