//! Parses any bytes as the object of the programs: fields are found or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent_loader::fields;

fuzz_target!(|object: &[u8]| {
    for field in fields::declared(object).unwrap_or_default() {
        assert!(field.symbol.contains('.'));
    }
});
