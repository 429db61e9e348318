//! The part of HPACK's Huffman code (RFC 7541, appendix B) that `traceparent` fields require.
//!
//! The code is canonical: codes of one length are consecutive numbers. The name and the valid values of the field
//! contain only characters with codes of five or six bits, so the table ends there.

/// The characters with five-bit codes, from code 0.
const FIVE_BITS: &[u8; 10] = b"012aceiost";
/// The characters with six-bit codes, from code [`FIRST_OF_SIX_BITS`].
const SIX_BITS: &[u8; 26] = b" %-./3456789=A_bdfghlmnpru";
/// The first code of six bits.
const FIRST_OF_SIX_BITS: usize = 20;

/// Decodes characters until the buffer is full or the text ends. Returns the decoded characters, or `None` if a
/// character has a longer code or the padding is invalid.
pub(super) fn decode<'a>(coded: &[u8], decoded: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut bits = Bits { value: 0, count: 0, rest: coded };
    let mut length = 0;
    while length < decoded.len() {
        let Some(character) = bits.character() else {
            return bits.are_padding().then(|| &decoded[..length]);
        };
        decoded[length] = character;
        length += 1;
    }
    Some(decoded)
}

/// The bits of a coded text.
struct Bits<'a> {
    /// Bits that were read from the text, in the low `count` bits.
    value: u32,
    count: u32,
    rest: &'a [u8],
}

impl Bits<'_> {
    /// Reads a character with a short code. Reads nothing if there is none.
    fn character(&mut self) -> Option<u8> {
        if self.count < 6
            && let Some((byte, rest)) = self.rest.split_first()
        {
            self.value = (self.value << 8) | u32::from(*byte);
            self.count += 8;
            self.rest = rest;
        }
        if let Some(character) = FIVE_BITS.get(self.first(5)?) {
            self.count -= 5;
            return Some(*character);
        }
        let character = self.first(6)?.checked_sub(FIRST_OF_SIX_BITS).and_then(|place| SIX_BITS.get(place))?;
        self.count -= 6;
        Some(*character)
    }

    /// Returns the next bits as a number.
    fn first(&self, bits: u32) -> Option<usize> {
        let shift = self.count.checked_sub(bits)?;
        Some((self.value >> shift) as usize & ((1 << bits) - 1))
    }

    /// Returns true if less than a byte is left, and all its bits are set (RFC 7541, section 5.2).
    fn are_padding(&self) -> bool {
        let ones = (1 << self.count) - 1;
        self.rest.is_empty() && self.count < 8 && self.value & ones == ones
    }
}

/// Encodes characters with short codes.
#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let place = |characters: &[u8], character| characters.iter().position(|other| *other == character);
    let mut bits: String = text
        .iter()
        .map(|character| match place(FIVE_BITS, *character) {
            Some(code) => format!("{code:05b}"),
            None => format!("{:06b}", FIRST_OF_SIX_BITS + place(SIX_BITS, *character).expect("a short code")),
        })
        .collect();
    bits.extend(std::iter::repeat_n('1', bits.len().next_multiple_of(8) - bits.len()));
    let bytes = bits.as_bytes().chunks(8).map(|byte| str::from_utf8(byte).expect("digits"));
    bytes.map(|byte| u8::from_str_radix(byte, 2).expect("eight bits")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut decoded = [0; 16];
        decode(coded, &mut decoded).map(<[u8]>::to_vec)
    }

    /// Examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn examples_of_the_specification_are_decoded() {
        assert_eq!(decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).unwrap(), b"no-cache");
        assert_eq!(decoded(&[0x64, 0x02]).unwrap(), b"302");
        assert_eq!(decoded(&[0x64, 0x0e, 0xff]).unwrap(), b"307");
        assert_eq!(decoded(&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f]), None, "custom-key: k has seven bits");
        assert_eq!(decoded(b"").unwrap(), b"");
    }

    #[test]
    fn invalid_padding_is_rejected() {
        let coded = encode(b"302");
        assert_eq!(decoded(&[&*coded, &[0xff]].concat()), None, "eight bits");
        assert_eq!(decoded(&[0x64, 0x0e, 0xfe]), None, "a zero");
        assert_eq!(decoded(&[0xff]), None, "eight bits without a character");
    }

    proptest! {
        #[test]
        fn a_coded_text_is_decoded(text in "[0-9a-ilmnopr-uA%./=_ -]{0,40}") {
            let text = text.as_bytes();
            prop_assert_eq!(decoded(&encode(text)).unwrap(), &text[..text.len().min(16)]);
        }
    }
}
