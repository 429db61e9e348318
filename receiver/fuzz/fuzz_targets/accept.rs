//! Selects a format by any value of the header `Accept`: no panic, and spaces change nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent_export::prometheus::negotiate;

fuzz_target!(|value: &str| {
    let _ = negotiate(value);
    let spaced = value.replace(',', " , ").replace(';', " ; ");
    assert_eq!(negotiate(&spaced), negotiate(value), "{value:?}");
});
