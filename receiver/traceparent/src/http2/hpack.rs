//! HPACK: the literal fields of a header block (RFC 7541, sections 5 and 6).
//!
//! No entry of the static table has the name `traceparent`. The entries of the dynamic table are unknown to a passive
//! observer: they come from earlier packets. So the parser finds the field only if the block contains its name and its
//! value. The first request of a connection contains both. Clients that index the name then refer to the dynamic
//! table, and the contexts of their later requests are not found.

use super::{
    super::{Fields, NAME, SpanContext, context},
    huffman,
};

/// The reason why no field is left to read.
enum Stop {
    /// The block ends within a field.
    End,
    /// The bytes are no field.
    Malformed,
}

/// Returns the `traceparent` fields of a header block. A block that is cut can end within a field; otherwise, returns
/// `None`. Also returns `None` for a malformed block.
pub(super) fn fields(block: &[u8], is_cut: bool) -> Option<Fields> {
    let (mut reader, mut fields) = (Reader(block), Fields::default());
    while !reader.0.is_empty() {
        match reader.field(&mut fields) {
            Ok(()) => {}
            Err(Stop::End) if is_cut => break,
            Err(_) => return None,
        }
    }
    Some(fields)
}

/// The remaining bytes of a header block.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads one representation: a field, or a new size of the dynamic table.
    fn field(&mut self, fields: &mut Fields) -> Result<(), Stop> {
        const INDEXED: u32 = 0;
        const INCREMENTAL_INDEXING: u32 = 1;
        const SIZE_UPDATE: u32 = 2;
        let first = self.0.first().ok_or(Stop::End)?;
        let prefix = match first.leading_zeros() {
            INDEXED => return if self.integer(7)? == 0 { Err(Stop::Malformed) } else { Ok(()) },
            INCREMENTAL_INDEXING => 6,
            SIZE_UPDATE => return self.integer(5).map(|_| ()),
            // Without indexing, and never indexed.
            _ => 4,
        };
        let has_name = self.integer(prefix)? == 0;
        let is_context = has_name && self.string()?.is_name();
        let value = self.string();
        if is_context {
            // A cut value counts, too.
            fields.add(value.as_ref().ok().and_then(Text::context));
        }
        value.map(|_| ())
    }

    /// Reads an integer that begins in the low bits of the next byte.
    fn integer(&mut self, prefix: u32) -> Result<usize, Stop> {
        let max = (1 << prefix) - 1;
        let mut value = usize::from(self.byte()?) & max;
        if value < max {
            return Ok(value);
        }
        // 21 bits are more than the length of a frame requires.
        for shift in [0, 7, 14] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Malformed)
    }

    /// Reads the literal of a name or a value.
    fn string(&mut self) -> Result<Text<'a>, Stop> {
        let is_coded = self.0.first().ok_or(Stop::End)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Stop::End)?;
        self.0 = rest;
        Ok(Text { is_coded, bytes })
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let (byte, rest) = self.0.split_first().ok_or(Stop::End)?;
        self.0 = rest;
        Ok(*byte)
    }
}

/// The literal of a name or a value, with or without the Huffman code.
struct Text<'a> {
    is_coded: bool,
    bytes: &'a [u8],
}

impl Text<'_> {
    /// Returns true for the name of the field. HTTP/2 requires lower case (RFC 9113, section 8.2.1).
    fn is_name(&self) -> bool {
        let mut decoded = [0; NAME.len() + 1];
        self.start(&mut decoded) == Some(&NAME)
    }

    /// Returns the context of a value. HTTP/2 has no white space around values (RFC 9113, section 8.2.1).
    fn context(&self) -> Option<SpanContext> {
        // The result does not depend on bytes after the separator of an extension.
        let mut decoded = [0; context::LENGTH + 1];
        context::parse(self.start(&mut decoded)?)
    }

    /// Decodes the start of the text, up to the size of the buffer.
    fn start<'b>(&self, decoded: &'b mut [u8]) -> Option<&'b [u8]> {
        if self.is_coded {
            return huffman::decode(self.bytes, decoded);
        }
        let length = self.bytes.len().min(decoded.len());
        decoded[..length].copy_from_slice(&self.bytes[..length]);
        Some(&decoded[..length])
    }
}
