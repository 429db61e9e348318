//! Programs that read the pages of the sidecar, and programs that only occupy its connections.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use crate::support::{
    line::Line,
    sidecar::Sidecar,
    surroundings::{alone, often, patience},
};

/// Slow clients: twice the connections that the sidecar answers at a time.
const SLOW: usize = 32;
const EXPORTS: &str = "otel.sdk.exporter.operation.duration";
const GARBAGE: [&[u8]; 4] =
    [b"\x16\x03\x01\x02\x00\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n"];

fn free() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Sends a request, and returns the whole response.
fn send(address: SocketAddr, request: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience(Duration::from_secs(30))))?;
    stream.write_all(request)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

fn get(address: SocketAddr, path: &str) -> String {
    send(address, format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap()
}

/// Returns the number of requests with this outcome.
fn refused(line: &Line, reason: &str) -> f64 {
    line.total(EXPORTS, &[("otel.component.type", "listen"), ("error.type", reason)])
}

#[test]
fn slow_and_malformed_readers_hold_nothing_back() {
    let Some(_alone) = alone("slow and malformed readers") else { return };
    let address = free();
    let sidecar = Sidecar::start_with(often(), &["--listen", &address.to_string()], &[]);
    let slow: Vec<TcpStream> = (0..SLOW)
        .map(|number| {
            let mut stream = TcpStream::connect(address).unwrap();
            // Half of them send a part of a request, the others nothing.
            let request: &[u8] = if number % 2 == 0 { b"GET /metrics HTTP/1.1\r\nho" } else { b"" };
            stream.write_all(request).unwrap();
            stream
        })
        .collect();
    // Snapshots continue while all connections are occupied.
    (0..3).for_each(|_| drop(sidecar.snapshot()));
    for request in GARBAGE {
        let response = send(address, request).unwrap();
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    }
    let long = [b"GET /metrics HTTP/1.1\r\nx: ".as_slice(), &[b'a'; 17 << 10], b"\r\n\r\n"].concat();
    // The kernel resets the connection if the sidecar closes it before it has read everything.
    let response = send(address, &long).unwrap_or_else(|error| error.to_string());
    assert!(!response.contains(" 200 "), "{response}");
    let text = get(address, "/metrics");
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("\nundercurrent_build_info{"), "{text}");
    let json = get(address, "/v1/snapshot");
    let (_, body) = json.split_once("\r\n\r\n").unwrap();
    assert!(!Line::parse(body).points.is_empty(), "{json}");
    sidecar.line("the refusals in a snapshot", |line| {
        refused(line, "timeout") >= SLOW as f64 && refused(line, "400") == GARBAGE.len() as f64
    });
    drop(slow);
    sidecar.stop();
}
