//! A connection to a recorded reply: a client of HTTP sends its request nowhere, and then receives the reply.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The end of an HTTP/1 request without a body.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// The first bytes of a connection with HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of a frame's header, in bytes.
const FRAME: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// A connection whose reply is known. A client that received it before its request was complete would report an error.
pub(super) struct Replay {
    reply: io::Cursor<Vec<u8>>,
    /// The request so far; empty once it is complete.
    request: Vec<u8>,
    is_complete: bool,
    reader: Option<Waker>,
}

impl Replay {
    pub(super) fn new(reply: Vec<u8>) -> Self {
        Self { reply: io::Cursor::new(reply), request: Vec::new(), is_complete: false, reader: None }
    }
}

/// Returns true if the bytes are a complete request of HTTP/1 without a body, or of HTTP/2.
fn is_request(bytes: &[u8]) -> bool {
    let Some(mut frames) = bytes.strip_prefix(PREFACE) else {
        return !PREFACE.starts_with(bytes) && bytes.ends_with(END_OF_HEAD);
    };
    while let Some((header, rest)) = frames.split_at_checked(FRAME) {
        if matches!(header[3], DATA | HEADERS) && header[4] & END_STREAM != 0 {
            return true;
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        frames = rest.get(length..).unwrap_or_default();
    }
    false
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_complete {
            Pin::new(&mut self.reply).poll_read(context, buffer)
        } else {
            self.reader = Some(context.waker().clone());
            Poll::Pending
        }
    }
}

impl AsyncWrite for Replay {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.is_complete {
            self.request.extend_from_slice(bytes);
            if is_request(&self.request) {
                self.is_complete = true;
                self.request = Vec::new();
                self.reader.take().into_iter().for_each(Waker::wake);
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete_at_its_end() {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let data = [0, 0, 1, DATA, END_STREAM, 0, 0, 0, 1, 7];
        let http2 = [PREFACE, &settings, &data].concat();
        for (request, complete) in [(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(), 27), (http2, PREFACE.len() + 18)] {
            let first = (0..=request.len()).position(|length| is_request(&request[..length]));
            assert_eq!(first, Some(complete));
        }
    }
}
