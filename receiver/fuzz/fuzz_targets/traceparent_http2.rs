//! Parses any bytes as the HTTP/2 payload of a packet: no panic, and one context wherever the packet ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent_traceparent::{Protocols, SpanContext, find};

#[path = "../../traceparent/src/http2_invariants.rs"]
mod http2_invariants;

fuzz_target!(|payload: &[u8]| http2_invariants::check(payload));
