//! Parses any bytes as the HTTP/2 payload of a packet: no panic, and one context wherever the packet ends.
//!
//! `cargo +nightly fuzz run traceparent_http2 corpus/traceparent_http2 ../fixtures/traceparent/http2 -- -max_len=4200`,
//! in `receiver/fuzz`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent::traceparent::{Protocols, SpanContext, find};

#[path = "../../src/traceparent/http2_invariants.rs"]
mod http2_invariants;

fuzz_target!(|payload: &[u8]| http2_invariants::check(payload));
