//! Tests of the `traceparent` in the payload of slow packets.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    os::fd::AsFd as _,
    thread,
    time::Duration,
};

use aya::maps::{MapInfo, loaded_maps};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{
    super::{
        latency::{on_functions, served_by},
        support::{
            line::Line,
            sidecar::Sidecar,
            span::Span,
            surroundings::{alone, function, patience, skip, wait_for},
            wire::{Version, Wire},
        },
    },
    LATE, Slow, late, settings, stream, traced,
};

/// A trace and a span, as in the W3C specification.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a request with a `traceparent` after other header fields.
fn request(padding: usize, span: &str, flags: &str) -> String {
    let padding = "p".repeat(padding);
    format!("GET / HTTP/1.1\r\nHost: a\r\nX-Padding: {padding}\r\nTraceParent: 00-{TRACE}-{span}-{flags}\r\n\r\n")
}

/// Sends the segments of a request, and reads them late.
fn segments_late(client: &TcpStream, server: &TcpStream, segments: &[&[u8]]) -> Slow {
    let ends = [server.local_addr().unwrap(), server.peer_addr().unwrap()];
    let send = || segments.iter().map(|segment| (&*client).write(segment).unwrap()).sum();
    Slow::exchange(ends, send, late, || (&*server).read(&mut [0; 8192]).unwrap())
}

/// Sends a request, and reads it late.
fn request_late(client: &TcpStream, server: &TcpStream, request: &str) -> Slow {
    segments_late(client, server, &[request.as_bytes()])
}

/// Returns true if the programs can read the payload of a connection on this kernel.
fn reads_payload(line: &Line) -> bool {
    on_functions(line, "socket_read") || function("bpf_copy_from_user_str")
}

/// Starts a sidecar whose programs can read payload, and returns its first snapshot too; skips the test on other kernels.
fn inspecting(test: &str, more: &str) -> Option<(Sidecar, Line)> {
    let sidecar = Sidecar::configured(&settings(more));
    let line = sidecar.snapshot();
    if served_by(&line, "socket_read").is_none() || !reads_payload(&line) {
        skip(&format!("{test}: programs cannot read payload on this kernel"));
        return None;
    }
    Some((sidecar, line))
}

fn remote_parents(version: Version) {
    let Some((sidecar, _)) = inspecting("remote parents", "") else { return };
    let wire = Wire::loopback(version);
    for padding in [0, 3_000] {
        let (client, server) = stream(&wire);
        let slow = request_late(&client, &server, &request(padding, SPAN, "01"));
        let (span, steps) = traced(&sidecar, &slow);
        assert_eq!((hexadecimal(&span.trace), hexadecimal(&span.parent)), (TRACE.to_owned(), SPAN.to_owned()));
        assert!(!steps.is_empty() && steps.iter().all(|step| step.trace == span.trace), "{steps:?}");
    }
    // A request that is not sampled has no span; a malformed field has no effect.
    let (client, server) = stream(&wire);
    request_late(&client, &server, &request(0, SPAN, "00"));
    let (other, answering) = stream(&wire);
    let slow = request_late(&other, &answering, &request(0, "b7ad6b716920333g", "01"));
    let (span, _) = traced(&sidecar, &slow);
    assert_eq!(span.parent.len(), 0, "{span:?}");
    let spans = sidecar.spans();
    let port = client.local_addr().unwrap().port().to_string();
    assert!(spans.iter().all(|span| span.attribute("network.peer.port") != port), "a request that is not sampled");
}

#[test]
fn spans_belong_to_the_trace_of_their_request_over_ipv4() {
    let Some(_alone) = alone("remote parents over IPv4") else { return };
    remote_parents(Version::Ipv4);
}

#[test]
fn spans_belong_to_the_trace_of_their_request_over_ipv6() {
    let Some(_alone) = alone("remote parents over IPv6") else { return };
    remote_parents(Version::Ipv6);
}

/// Returns a request with these lines after its first one.
fn with_lines(lines: &[&[u8]]) -> Vec<u8> {
    [b"GET / HTTP/1.1\r\nHost: a\r\n", &*lines.join(&b"\r\n"[..]), b"\r\n\r\n"].concat()
}

/// Returns payloads without a valid context, by name.
fn without_context() -> Vec<(&'static str, Vec<u8>)> {
    let value = format!("00-{TRACE}-{SPAN}-01");
    let field = |value: &str| format!("traceparent: {value}").into_bytes();
    let only = |value: &str| with_lines(&[&field(value)]);
    let oversized = format!("{value}{}", "0".repeat(1_000));
    let binary = [&[0, 1, 0xff, 0xfe][..], &with_lines(&[&field(&value)])].concat();
    vec![
        ("a duplicate", with_lines(&[&field(&value), &field(&value)])),
        ("a trace of zeros", only(&value.replace(TRACE, &"0".repeat(32)))),
        ("a span of zeros", only(&value.replace(SPAN, &"0".repeat(16)))),
        ("version ff", only(&value.replacen("00", "ff", 1))),
        ("an extension of version 00", only(&format!("{value}-00"))),
        ("upper case", only(&value.to_ascii_uppercase())),
        ("an oversized value", only(&oversized)),
        ("a field behind the inspected bytes", request(4_096, SPAN, "01").into_bytes()),
        ("a binary body", binary),
        ("a body of an earlier request", [b"{\"a\": 1}\r\n\r\n", &*field(&value), b"\r\n"].concat()),
    ]
}

#[test]
fn invalid_fields_have_no_effect() {
    let Some(_alone) = alone("invalid fields") else { return };
    let Some((sidecar, _)) = inspecting("invalid fields", "budget: 100") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let parent = |payload: &[u8]| {
        let (client, server) = stream(&wire);
        let slow = segments_late(&client, &server, &[payload]);
        hexadecimal(&traced(&sidecar, &slow).0.parent)
    };
    for (name, payload) in without_context() {
        assert_eq!(parent(&payload), "", "{name}");
    }
    let later = format!("traceparent: cc-{TRACE}-{SPAN}-01-extension");
    assert_eq!(parent(&with_lines(&[later.as_bytes()])), SPAN, "a later version");
}

/// A text of requests that must not leave the kernel.
const SECRET: &str = "a secret between client and server";

/// Returns the bytes of all events in the newest ring of selected packets. The ring keeps the bytes of events that were read.
fn events() -> Vec<u8> {
    const BYTES: usize = 256 * 1024;
    let rings = loaded_maps().filter_map(Result::ok).filter(|map| map.name_as_str() == Some("SLOW_PACKETS"));
    let ring = rings.max_by_key(MapInfo::id).expect("a ring").fd().unwrap();
    let (anywhere, page) = (std::ptr::null_mut(), rustix::param::page_size());
    // The position of the consumer and that of the producer have a page each.
    // SAFETY: the kernel chooses an unused address for the new mapping.
    let data =
        unsafe { mmap(anywhere, BYTES, ProtFlags::READ, MapFlags::SHARED, ring.as_fd(), 2 * page as u64) }.unwrap();
    let mut bytes = vec![0; BYTES];
    // SAFETY: the mapping has `BYTES` bytes. The copy needs no reference to them, because programs may write.
    unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), BYTES) };
    // SAFETY: no reference points into the mapping.
    unsafe { munmap(data, BYTES) }.unwrap();
    bytes
}

#[test]
fn with_http1_only_the_value_of_the_field_leaves_the_kernel() {
    const TEST: &str = "bytes of payload that leave the kernel";
    let Some(_alone) = alone(TEST) else { return };
    let value = format!("cc-{TRACE}-{SPAN}-01-");
    let field = format!("traceparent: {value}{SECRET}");
    let cookie = format!("Cookie: {SECRET}");
    let request = [&*with_lines(&[cookie.as_bytes(), field.as_bytes(), cookie.as_bytes()]), SECRET.as_bytes()].concat();
    for (payload, is_passed) in [("http1", false), ("http2", true)] {
        let Some((sidecar, _)) = inspecting(TEST, &format!("payload: {payload}")) else { return };
        let wire = Wire::loopback(Version::Ipv4);
        for (request, parent) in [(&*request, SPAN), (SECRET.as_bytes(), "")] {
            let (client, server) = stream(&wire);
            let slow = segments_late(&client, &server, &[request]);
            assert_eq!(hexadecimal(&traced(&sidecar, &slow).0.parent), parent, "{payload}");
        }
        let events = events();
        let has = |text: &str| events.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        assert_eq!((has(&value), has(SECRET)), (true, is_passed), "{payload}");
    }
}

#[test]
fn a_field_in_two_segments_is_read_whole_or_not_at_all() {
    let Some(_alone) = alone("a field in two segments") else { return };
    let Some((sidecar, line)) = inspecting("a field in two segments", "budget: 100") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let request = request(0, SPAN, "01");
    let (first, second) = request.as_bytes().split_at(request.len() - 40);
    let parent = |slow: &Slow| hexadecimal(&traced(&sidecar, slow).0.parent);

    let (client, server) = stream(&wire);
    let parts = [first, second].map(|part| segments_late(&client, &server, &[part]));
    assert_eq!(parts.each_ref().map(parent), ["", ""], "a read of each segment");

    let (client, server) = stream(&wire);
    let parent = parent(&segments_late(&client, &server, &[first, second]));
    eprintln!("a read of both segments has the parent {parent:?}");
    // The tracepoint reads one packet. The kernel may have merged the segments.
    assert!(parent == SPAN || parent.is_empty() && !on_functions(&line, "socket_read"), "{parent:?}");
}

#[test]
fn without_inspection_no_span_has_a_remote_parent() {
    let Some(_alone) = alone("payload without inspection") else { return };
    let sidecar = Sidecar::configured(&settings("payload: none, addresses: none"));
    let wire = Wire::loopback(Version::Ipv4);
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("payload without inspection: nothing serves socket_read");
    }
    let (client, server) = stream(&wire);
    request_late(&client, &server, &request(0, SPAN, "01"));
    let name = "network receive";
    let find = || sidecar.spans().iter().find(|span| span.name == name).cloned();
    let span = wait_for("a span", patience(Duration::from_secs(5)), find);
    assert_eq!(span.parent.len(), 0);
    let keys: Vec<_> =
        span.attributes.keys().filter(|key| key.ends_with("address") || key.ends_with(".port")).collect();
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn a_stall_of_many_requests_is_one_span_with_links() {
    const REQUESTS: usize = 6;
    let Some(_alone) = alone("a stall") else { return };
    let Some((sidecar, _)) = inspecting("a stall", "") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let connections: Vec<_> = (0..REQUESTS).map(|_| stream(&wire)).collect();
    let ids: Vec<String> = (1..=REQUESTS).map(|number| format!("{number:016x}")).collect();
    for ((client, _), id) in connections.iter().zip(&ids) {
        assert!((&*client).write(request(0, id, "01").as_bytes()).unwrap() > 0);
    }
    thread::sleep(LATE);
    for (_, server) in &connections {
        assert!((&*server).read(&mut [0; 8192]).unwrap() > 0);
    }
    let linked = || {
        let spans = sidecar.spans();
        let of = |span: &Span| span.links.iter().map(|(_, id)| hexadecimal(id)).collect::<Vec<_>>();
        let parents = spans.iter().filter(|span| span.name == "network receive" && !span.parent.is_empty());
        let mut all: Vec<_> = spans.iter().flat_map(of).chain(parents.map(|span| hexadecimal(&span.parent))).collect();
        all.sort();
        (all == ids).then(|| spans.iter().map(|span| span.links.len()).max().unwrap_or(0))
    };
    let most = wait_for("a link to each request", patience(Duration::from_secs(5)), linked);
    // The reads may be on both sides of the end of a batch.
    assert!(most >= REQUESTS / 2, "{most} links");
}
