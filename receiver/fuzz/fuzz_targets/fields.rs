//! Parses any bytes as the object of the programs: fields are found or refused.
//!
//! `cargo +nightly fuzz run fields corpus/fields ../fixtures`, in `receiver/fuzz`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent::loader::fields;

fuzz_target!(|object: &[u8]| {
    for field in fields::declared(object).unwrap_or_default() {
        assert!(field.symbol.contains('.'));
    }
});
