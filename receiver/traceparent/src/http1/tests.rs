use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::find;
use crate::{
    LIMIT, Protocols, http1_invariants,
    testing::{OTHER, VALUE, context, receive, with_context},
};

const REQUEST: &[u8] = b"GET /orders?id=7 HTTP/1.1\r\nHost: shop\r\n";

/// Returns a request with more lines after the field "Host". The lines contain their ends.
fn request(lines: &[&[u8]]) -> Vec<u8> {
    [REQUEST, &lines.concat()].concat()
}

/// Returns a field of this name with the sampled value.
fn field(name: &str) -> Vec<u8> {
    [name.as_bytes(), b": ", VALUE, b"\r\n"].concat()
}

#[test]
fn requests_and_responses_have_a_context() {
    let field = field("traceparent");
    assert_eq!(find(&request(&[&field, b"\r\n"])), Some(context()));
    assert_eq!(find(&request(&[b"Accept: */*\r\n", &field, b"A: b\r\n\r\n{}"])), Some(context()));
    assert_eq!(find(&[b"HTTP/1.1 200 OK\r\n", &*field, b"\r\nbody"].concat()), Some(context()));
    assert_eq!(find(&[b"HTTP/1.0 404 \r\n", &*field, b"\r\n"].concat()), Some(context()));
    assert_eq!(find(&request(&[b"\r\n"])), None);
    assert_eq!(find(b""), None);
}

#[test]
fn the_name_has_any_case_and_no_other_characters() {
    for name in ["traceparent", "Traceparent", "TraceParent", "TRACEPARENT"] {
        assert_eq!(find(&request(&[&field(name), b"\r\n"])), Some(context()), "{name}");
    }
    for name in ["trace-parent", "traceparen", "traceparents", "x-traceparent", "elastic-apm-traceparent", "tracestate"]
    {
        assert_eq!(find(&request(&[&field(name), b"\r\n"])), None, "{name}");
    }
}

#[test]
fn white_space_around_the_value_is_trimmed() {
    for (before, after) in [("", ""), (" ", ""), ("\t", " "), (" \t  ", "\t\t ")] {
        let line = [b"traceparent:", before.as_bytes(), VALUE, after.as_bytes(), b"\r\n\r\n"].concat();
        assert_eq!(find(&request(&[&line])), Some(context()), "{line:?}");
    }
    for around in [["\u{b}", ""], ["", "\u{c}"], ["\u{a0}", ""], ["\"", "\""], ["", ";"], ["", ", "]] {
        let line = [b"traceparent: ", around[0].as_bytes(), VALUE, around[1].as_bytes(), b"\r\n\r\n"].concat();
        assert_eq!(find(&request(&[&line])), None, "{line:?}");
    }
}

#[test]
fn two_fields_have_no_context() {
    let field = field("traceparent");
    let other = [b"TraceParent: ", OTHER, b"\r\n"].concat();
    assert_eq!(find(&request(&[&other, b"\r\n"])).map(|context| context.is_sampled()), Some(false));
    assert_eq!(find(&request(&[&field, &field, b"\r\n"])), None);
    assert_eq!(find(&request(&[&field, b"A: b\r\n", &other, b"\r\n"])), None);
    assert_eq!(find(&request(&[&field, b"traceparent:\r\n\r\n"])), None);
    assert_eq!(find(&request(&[b"traceparent: none\r\n", &field, b"\r\n"])), None);
    // A cut field is the second one as soon as its name is complete.
    assert_eq!(find(&request(&[&field, b"traceparent: 00-"])), None);
    assert_eq!(find(&request(&[&field, b"traceparent"])), Some(context()));
    let list = [b"traceparent: ", VALUE, b",", OTHER, b"\r\n\r\n"].concat();
    assert_eq!(find(&request(&[&list])), None);
}

#[test]
fn a_malformed_header_section_has_no_context() {
    let field = field("traceparent");
    for line in [
        &b"no colon\r\n"[..],
        b": no name\r\n",
        b"blank : before the colon\r\n",
        b" folded: line\r\n",
        b"\tfolded\r\n",
        b"bare: return\rhere\r\n",
        b"bare: line feed\n",
        b"\n",
        b"nul: \0\r\n",
        b"escape: \x1b[1m\r\n",
        b"delete: \x7f\r\n",
        b"n\xc3\xa4me: umlaut\r\n",
    ] {
        assert_eq!(find(&request(&[&field, line, b"\r\n"])), None, "{}", line.escape_ascii());
        assert_eq!(find(&request(&[line, &field, b"\r\n"])), None, "{}", line.escape_ascii());
    }
    // The line is cut, but no field begins like this.
    for cut in [&b" "[..], b":", b"blank ", b"name\r", b"\r\r", b"bare: return\rx", b"nul: \0"] {
        assert_eq!(find(&request(&[&field, cut])), None, "{}", cut.escape_ascii());
    }
    for cut in [&b""[..], b"\r", b"name", b"name:", b"name: value", b"name: value\r"] {
        assert_eq!(find(&request(&[&field, cut])), Some(context()), "{}", cut.escape_ascii());
    }
    assert_eq!(find(&request(&[b"empty:\r\n", b"umlaut: \xc3\xa4\xff\r\n", &field, b"\r\n"])), Some(context()));
}

#[test]
fn the_body_has_no_fields() {
    let field = field("traceparent");
    assert_eq!(find(&request(&[b"\r\n", &field, b"\r\n"])), None);
    assert_eq!(find(&request(&[b"\r\n{}\r\n", &field, b"\r\n"])), None);
    assert_eq!(find(&request(&[&field, b"\r\n", &field, b"\r\n"])), Some(context()));
    // The header section may have ended in the packet before.
    assert_eq!(find(&[b"\r\n", &*field, b"\r\n"].concat()), None);
    assert_eq!(find(&[b"\n", &*field, b"\r\n"].concat()), None);
    // A body that is no header section.
    assert_eq!(find(&[b"{\"log\":\r\n", &*field, b"}\r\n"].concat()), None);
    assert_eq!(find(&[b"46\r\n", &*field, b"\r\n0\r\n\r\n"].concat()), None, "a chunk");
    // A body in the form of a header section equals the second packet of a header section.
    assert_eq!(find(&[b"--boundary\r\n", &*field, b"\r\n"].concat()), Some(context()));
}

#[test]
fn binary_payloads_have_no_context() {
    let field = field("traceparent");
    for start in [&b"\x16\x03\x01\x02\x00\x01"[..], b"\x00\x00\x04\x08", b"\x1f\x8b\x08", b"\x89PNG\r\n\x1a\n"] {
        assert_eq!(find(&[start, b"\r\n", &field, b"\r\n"].concat()), None);
    }
    assert_eq!(find(&[0xff; 2 * LIMIT]), None);
    assert_eq!(find(&[0; LIMIT]), None);
}

#[test]
fn a_cut_value_is_never_accepted() {
    let request = request(&[&field("traceparent"), b"Accept: */*\r\n\r\nbody"]);
    let end = REQUEST.len() + field("traceparent").len();
    for cut in 0..=request.len() {
        let expected = (cut >= end).then_some(context());
        assert_eq!(find(&request[..cut]), expected, "{cut}");
    }
}

#[test]
fn the_second_packet_of_a_header_section_has_a_context() {
    let request = request(&[&field("traceparent"), b"Accept: */*\r\n\r\nbody"]);
    let ends: Vec<usize> = request.windows(2).enumerate().filter(|(_, end)| end == b"\r\n").map(|(at, _)| at).collect();
    for start in 0..=request.len() {
        // The field is found unless the payload begins in or at its line, or could begin with the start of a body: the
        // last character of the start line could be the size of a chunk.
        let is_ambiguous = (ends[0] - 1..=ends[0] + 1).contains(&start);
        let expected = (start < ends[1] && !is_ambiguous).then_some(context());
        assert_eq!(find(&request[start..]), expected, "{start}");
    }
    let [first, second] = [&request[..10], &request[10..]];
    assert_eq!([find(first), find(second)], [None, Some(context())]);
}

/// The start of the first line is unknown, so its name may be longer.
#[test]
fn a_field_in_the_first_line_is_not_accepted() {
    assert_eq!(find(&[&*field("traceparent"), b"A: b\r\n\r\n"].concat()), None);
    assert_eq!(find(&[b"A: b\r\n", &*field("traceparent"), b"\r\n"].concat()), Some(context()));
}

#[test]
fn a_field_is_found_up_to_the_limit() {
    let line = field("traceparent");
    let padding = |length: usize| [b"Cookie: ".as_slice(), &vec![b'x'; length - 10], b"\r\n"].concat();
    let space = LIMIT - REQUEST.len() - line.len();
    let protocols = Protocols::default();
    let found = |length| crate::find(&request(&[&padding(length), &line, b"\r\n"]), protocols);
    assert_eq!(found(space), Some(context()));
    assert_eq!(found(space + 1), None);
    assert_eq!(found(space + LIMIT), None);
}

#[tokio::test]
async fn a_request_of_hyper_has_a_context() {
    let (client, mut server) = tokio::io::duplex(LIMIT);
    let (mut requests, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = hyper::Request::post("/orders?id=7")
        .header("host", "shop")
        .header("traceparent", VALUE)
        .header("tracestate", "rojo=00f067aa0ba902b7")
        .body("traceparent: in the body".to_owned())
        .unwrap();
    let response = tokio::spawn(async move { requests.send_request(request).await });
    let payload = receive(&mut server, b"in the body").await;
    assert_eq!(find(&payload), Some(context()));
    drop(server);
    response.await.unwrap().unwrap_err();
    connection.await.unwrap().ok();
}

#[tokio::test]
async fn a_response_of_hyper_has_a_context() {
    let (mut client, server) = tokio::io::duplex(LIMIT);
    let service = hyper::service::service_fn(|_| async {
        hyper::Response::builder().header("TraceParent", VALUE).body("the body".to_owned())
    });
    let connection =
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service));
    client.write_all(&request(&[b"\r\n"])).await.unwrap();
    let payload = receive(&mut client, b"the body").await;
    assert_eq!(find(&payload), Some(context()));
    drop(client);
    connection.await.unwrap().ok();
}

#[test]
fn the_fixtures_have_these_contexts() {
    assert_eq!(with_context("http1", find), ["later_version", "request", "response", "second_packet"]);
}

/// Returns fragments of messages, which are likely to form header sections.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop::sample::select(vec![
        &b"\r\n"[..],
        b"\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b":",
        b" ",
        b"GET / HTTP/1.1\r\n",
        b"traceparent",
        b"TraceParent: ",
        b"Host: shop\r\n",
        VALUE,
        OTHER,
    ]);
    prop_oneof![
        8 => fixed.prop_map(<[u8]>::to_vec),
        1 => Just(field("traceparent")),
        1 => "[ -~]{1,5}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ]
}

proptest! {
    #[test]
    fn any_payload_has_the_result_of_another_parser(fragments in prop::collection::vec(fragment(), 0..20)) {
        http1_invariants::check(&fragments.concat());
    }

    #[test]
    fn a_context_is_found_among_any_fields(
        fields in prop::collection::vec("[a-s-]{1,10}:[ \t]{0,2}[!-~\u{e4}\t ]{0,20}\r\n", 0..20),
        place in any::<prop::sample::Index>(),
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut lines: Vec<Vec<u8>> = fields.into_iter().map(String::into_bytes).collect();
        lines.insert(place.index(lines.len() + 1), field("traceParent"));
        let message = [REQUEST, &lines.concat(), b"\r\n", &body].concat();
        prop_assert_eq!(find(&message), Some(context()));
        http1_invariants::check(&message);
        for cut in 0..message.len() {
            http1_invariants::check(&message[..cut]);
            http1_invariants::check(&message[cut..]);
        }
    }
}
