//! Parses any bytes as the HTTP/1 payload of a packet: no panic, and the result of another parser.
//!
//! `cargo +nightly fuzz run traceparent_http1 corpus/traceparent_http1 ../fixtures/traceparent/http1 -- -max_len=4200`,
//! in `receiver/fuzz`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent::traceparent::{LIMIT, Protocols, SpanContext, find};

#[path = "../../src/traceparent/http1_invariants.rs"]
mod http1_invariants;

fuzz_target!(|payload: &[u8]| http1_invariants::check(payload));
