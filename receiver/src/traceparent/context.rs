//! The value of a `traceparent` field: W3C Trace Context Level 2, section 3.2.

use undercurrent_ebpf::abi::slow;

use super::Context;

/// The length of version 00 in bytes, and the minimum of later versions.
pub(super) const LENGTH: usize = 55;
const _: () = assert!(slow::VALUE == LENGTH + 1);
/// The flag "sampled" of `trace-flags`.
const SAMPLED: u8 = 1;

/// Returns the context of a value without surrounding white space, or `None` if the value is invalid.
///
/// Later versions may append fields after a `-`, which the specification requires to ignore. Version `ff`, IDs of
/// zeros and upper-case digits are invalid.
#[must_use]
pub fn parse(value: &[u8]) -> Option<Context> {
    let (fields, extension) = value.split_at_checked(LENGTH)?;
    let dashes = [fields[2], fields[35], fields[52]] == *b"---";
    let [version] = bytes(&fields[..2])?;
    let is_supported = match version {
        0x00 => extension.is_empty(),
        0xff => false,
        _ => matches!(extension.first(), None | Some(b'-')),
    };
    if !dashes || !is_supported {
        return None;
    }
    let trace: [u8; 16] = bytes(&fields[3..35])?;
    let span: [u8; 8] = bytes(&fields[36..52])?;
    let [flags] = bytes(&fields[53..])?;
    let are_valid = trace != [0; 16] && span != [0; 8];
    are_valid.then_some(Context { trace, span, sampled: flags & SAMPLED != 0 })
}

/// Decodes `N` bytes from `2 * N` lower-case hexadecimal digits.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::traceparent::testing::{CONTEXT, VALUE, format};

    #[test]
    fn a_value_of_version_00_has_exactly_55_characters() {
        assert_eq!(parse(VALUE), Some(CONTEXT));
        assert_eq!(parse(&VALUE.replace_at(54, b"0")), Some(Context { sampled: false, ..CONTEXT }));
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
            assert_eq!(parse(&value), Some(Context { sampled: flags % 2 == 1, ..CONTEXT }));
        }
    }

    #[test]
    fn a_later_version_may_append_fields() {
        for version in ["01", "10", "cc", "fe"] {
            let value = VALUE.replace_at(0, version.as_bytes());
            for extension in ["", "-", "-00", "-an extension, with any \u{fc}ml\u{e4}ut"] {
                assert_eq!(parse(&[&value, extension.as_bytes()].concat()), Some(CONTEXT), "{version} {extension}");
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
            let context = Context { trace: trace.to_be_bytes(), span: span.to_be_bytes(), sampled };
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
