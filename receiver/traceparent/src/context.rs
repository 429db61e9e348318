//! The value of a `traceparent` field: W3C Trace Context Level 2, section 3.2.

use std::collections::HashMap;

use opentelemetry::{Context, propagation::TextMapPropagator as _, trace::TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use undercurrent_ebpf::abi::slow;

use super::SpanContext;

/// The length of version 00 in bytes, and the minimum of later versions.
pub(super) const LENGTH: usize = 55;
const _: () = assert!(slow::VALUE == LENGTH + 1);
/// The form of version 00: `x` is a lower-case hexadecimal digit.
const FORM: &[u8; LENGTH] = b"xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
/// The field that the propagator parses.
const FIELD: &str = "traceparent";

/// Returns the context of a value without surrounding white space, or `None` if the value is invalid.
///
/// Later versions may append fields after a `-`, which the specification requires to ignore. Version `ff`, IDs of
/// zeros and upper-case digits are invalid. The SDK's propagator parses the fields. It accepts shorter fields and signs, so
/// this function checks the form first.
#[must_use]
pub fn parse(value: &[u8]) -> Option<SpanContext> {
    let (fields, extension) = value.split_at_checked(LENGTH)?;
    let is_extended_well =
        if fields.starts_with(b"00") { extension.is_empty() } else { matches!(extension, [] | [b'-', ..]) };
    if !is_extended_well || !has_form(fields) {
        return None;
    }
    let fields = std::str::from_utf8(fields).ok()?;
    let carrier = HashMap::from([(FIELD.to_owned(), fields.to_owned())]);
    let extracted = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    let context = extracted.span().span_context().clone();
    context.is_valid().then_some(context)
}

fn has_form(fields: &[u8]) -> bool {
    let matches = |(byte, form): (&u8, &u8)| match form {
        b'x' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        other => byte == other,
    };
    fields.iter().zip(FORM).all(matches)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use opentelemetry::trace::TraceFlags;

    use super::*;
    use crate::testing::{VALUE, context, format, remote};

    fn unsampled() -> SpanContext {
        remote(
            u128::from_be_bytes(context().trace_id().to_bytes()),
            u64::from_be_bytes(context().span_id().to_bytes()),
            TraceFlags::default(),
        )
    }

    #[test]
    fn a_value_of_version_00_has_exactly_55_characters() {
        assert_eq!(parse(VALUE), Some(context()));
        assert_eq!(parse(&VALUE.replace_at(54, b"0")), Some(unsampled()));
        for end in 0..VALUE.len() {
            assert_eq!(parse(&VALUE[..end]), None, "{end}");
        }
        for extension in ["-", "-00", "0", " ", "\t", ",", ".", "\0"] {
            assert_eq!(parse(&[VALUE, extension.as_bytes()].concat()), None, "{extension:?}");
        }
    }

    #[test]
    fn all_flags_except_sampled_are_ignored() {
        for flags in 0..=255_u8 {
            let value = VALUE.replace_at(53, format!("{flags:02x}").as_bytes());
            assert_eq!(parse(&value), Some(if flags % 2 == 1 { context() } else { unsampled() }));
        }
    }

    #[test]
    fn a_later_version_may_append_fields() {
        for version in ["01", "10", "cc", "fe"] {
            let value = VALUE.replace_at(0, version.as_bytes());
            for extension in ["", "-", "-00", "-an extension, with any \u{fc}ml\u{e4}ut"] {
                assert_eq!(parse(&[&value, extension.as_bytes()].concat()), Some(context()), "{version} {extension}");
            }
            for extension in ["0", "0-", " ", ",", "_"] {
                assert_eq!(parse(&[&value, extension.as_bytes()].concat()), None, "{version} {extension}");
            }
            assert_eq!(parse(&value[..54]), None);
        }
        assert_eq!(parse(&VALUE.replace_at(0, b"ff")), None);
        assert_eq!(parse(&[&*VALUE.replace_at(0, b"ff"), b"-00"].concat()), None);
    }

    #[test]
    fn ids_of_zeros_are_invalid() {
        assert_eq!(parse(&VALUE.replace_at(3, &[b'0'; 32])), None);
        assert_eq!(parse(&VALUE.replace_at(36, &[b'0'; 16])), None);
        assert!(parse(&VALUE.replace_at(3, &[b'0'; 31])).is_some());
        assert!(parse(&VALUE.replace_at(36, &[b'0'; 15])).is_some());
    }

    #[test]
    fn every_character_has_its_place() {
        for (place, original) in VALUE.iter().enumerate() {
            for byte in 0..=255_u8 {
                // Another version accepts the value too, except ff.
                let is_valid = if *original == b'-' { byte == b'-' } else { b"0123456789abcdef".contains(&byte) };
                assert_eq!(parse(&VALUE.replace_at(place, &[byte])).is_some(), is_valid, "{place} {byte}");
            }
        }
    }

    trait Replace {
        fn replace_at(&self, at: usize, bytes: &[u8]) -> Vec<u8>;
    }

    impl Replace for [u8] {
        fn replace_at(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
            let mut copy = self.to_vec();
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            copy
        }
    }

    proptest! {
        #[test]
        fn a_formatted_context_is_parsed(trace in any::<u128>(), span in any::<u64>(), sampled in any::<bool>()) {
            prop_assume!(trace != 0 && span != 0);
            let context = remote(trace, span, if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() });
            prop_assert_eq!(parse(format(&context).as_bytes()), Some(context));
        }

        #[test]
        fn the_bytes_of_an_event_decide(
            version in "00|01|ff",
            end in "01|0g|1",
            extension in prop_oneof![Just(String::new()), "[- 0a]", "[- 0a].{1,70}"],
        ) {
            let value = [version.as_bytes(), &VALUE[2..53], end.as_bytes(), extension.as_bytes()].concat();
            prop_assert_eq!(parse(&value[..value.len().min(slow::VALUE)]), parse(&value));
        }

        #[test]
        fn version_00_has_one_value_for_each_context(value in "00-[0-9a-f]{31,33}-[0-9a-f]{16}-0[01]") {
            if let Some(context) = parse(value.as_bytes()) {
                prop_assert_eq!(format(&context), value);
            }
        }
    }
}
