//! HTTP/2 frames of a hostile server (RFC 9113).

use std::io::{self, Read, Write};

use super::random::Random;

/// Types of frames (section 6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
/// Flags.
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
/// Bytes of the client's preface.
const PREFACE: usize = 24;
/// The headers of a gRPC response in HPACK: `:status: 200`, and `content-type` as a literal.
pub const RESPONSE: &[u8] = b"\x88\x0f\x10\x10application/grpc";

/// Returns a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a header with a new name as an HPACK literal that is not indexed (RFC 7541, section 6.2.2).
pub fn header(name: &str, value: &[u8]) -> Vec<u8> {
    let text = |text: &[u8]| [&[u8::try_from(text.len().min(126)).unwrap()], &text[..text.len().min(126)]].concat();
    [vec![0], text(name.as_bytes()), text(value)].concat()
}

/// A frame of the client.
pub struct Received {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// Reads the client's preface, and sends empty settings.
///
/// # Errors
/// If the client disconnects.
pub fn greet(client: &mut (impl Read + Write)) -> io::Result<()> {
    client.read_exact(&mut [0; PREFACE])?;
    client.write_all(&frame(SETTINGS, 0, 0, &[]))
}

/// Receives a frame.
///
/// # Errors
/// If the client disconnects.
pub fn receive(client: &mut impl Read) -> io::Result<Received> {
    let mut header = [0; 9];
    client.read_exact(&mut header)?;
    let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
    client.read_exact(&mut payload)?;
    let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    Ok(Received { kind: header[3], flags: header[4], stream, payload })
}

/// Serves a connection until the client disconnects. `answer` returns the frames for a stream that the client has
/// ended, or `None` to disconnect.
///
/// # Errors
/// If the client disconnects.
pub fn serve(client: &mut (impl Read + Write), mut answer: impl FnMut(u32) -> Option<Vec<u8>>) -> io::Result<()> {
    greet(client)?;
    loop {
        let Received { kind, flags, stream, payload } = receive(client)?;
        match kind {
            SETTINGS if flags & ACK == 0 => client.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            PING if flags & ACK == 0 => client.write_all(&frame(PING, ACK, 0, &payload))?,
            DATA if !payload.is_empty() => {
                let window = u32::try_from(payload.len()).unwrap().to_be_bytes();
                // The window of the connection, and that of the request.
                client.write_all(&[0, stream].map(|of| frame(WINDOW_UPDATE, 0, of, &window)).concat())?;
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            let Some(answer) = answer(stream) else { return Ok(()) };
            client.write_all(&answer)?;
        }
    }
}

/// Returns bytes that a server may send in the place of a connection's frames.
pub fn broken_connection(random: &mut Random) -> Vec<u8> {
    let settings = frame(SETTINGS, 0, 0, &[]);
    let frames = |random: &mut Random| (0..1 + random.below(20)).flat_map(|_| broken_frame(random)).collect();
    match random.below(5) {
        0 => random.bytes(4096),
        1 => [settings, random.bytes(4096)].concat(),
        2 => [settings, frames(random)].concat(),
        3 => b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n{".to_vec(),
        // A TLS alert.
        _ => [vec![0x15, 3, 3, 0, 2, 2, 40], frames(random)].concat(),
    }
}

/// Returns a frame with a random type, including unknown ones. Its length may be wrong.
fn broken_frame(random: &mut Random) -> Vec<u8> {
    let (kind, flags, stream) = (random.byte() % 12, random.byte(), random.below(6) as u32);
    let mut frame = frame(kind, flags, stream, &random.bytes(64));
    if random.below(4) == 0 {
        frame[2] = random.byte();
    }
    frame
}

/// Returns the frames of a response that no gRPC server sends. They end the stream or break the connection.
pub fn broken_response(random: &mut Random, stream: u32) -> Vec<u8> {
    let end = END_HEADERS | END_STREAM;
    let code = random.byte().to_string();
    let trailers = |random: &mut Random| {
        let status = header("grpc-status", if random.below(2) == 0 { code.as_bytes() } else { b"-1" });
        let details = header("grpc-status-details-bin", &random.bytes(100));
        frame(HEADERS, end, stream, &[status, header("grpc-message", &random.bytes(100)), details].concat())
    };
    let headers = |block: &[u8]| frame(HEADERS, END_HEADERS, stream, block);
    match random.below(7) {
        // `:status` 204, 206, 304, 400, 404 and 500 of the static table.
        0 => frame(HEADERS, end, stream, &[0x89 + random.byte() % 6]),
        1 => [headers(RESPONSE), message(random, stream), trailers(random)].concat(),
        2 => [headers(RESPONSE), frame(DATA, END_STREAM, stream, &random.bytes(300))].concat(),
        3 => [
            headers(&[RESPONSE, &header("grpc-encoding", b"gzip")].concat()),
            message(random, stream),
            trailers(random),
        ]
        .concat(),
        4 => [headers(RESPONSE), frame(RST_STREAM, 0, stream, &u32::from(random.byte() % 16).to_be_bytes())].concat(),
        5 => [trailers(random), frame(GOAWAY, 0, 0, &random.bytes(64))].concat(),
        _ => frame(HEADERS, end, stream, &random.bytes(64)),
    }
}

/// Returns a message with a random body. Its flag and its length may be wrong.
fn message(random: &mut Random, stream: u32) -> Vec<u8> {
    let body = random.bytes(300);
    let length = if random.below(3) == 0 { u32::MAX } else { u32::try_from(body.len()).unwrap() };
    let prefix = [&[random.byte() % 3][..], &length.to_be_bytes()].concat();
    frame(DATA, 0, stream, &[prefix, body].concat())
}
