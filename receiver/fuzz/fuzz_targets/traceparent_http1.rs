//! Parses any bytes as the HTTP/1 payload of a packet: no panic, and the result of another parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent_traceparent::{LIMIT, Protocols, SpanContext, find};

#[path = "../../traceparent/src/http1_invariants.rs"]
mod http1_invariants;

fuzz_target!(|payload: &[u8]| http1_invariants::check(payload));
