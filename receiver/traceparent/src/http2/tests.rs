use proptest::prelude::*;

use super::*;
use crate::{
    LIMIT, http2_invariants,
    testing::{OTHER, VALUE, context, with_context},
};

mod clients;

const NAME: &[u8] = b"traceparent";
/// `:method: GET`, `:scheme: http` and `:path: /` in the static table.
const PSEUDO_FIELDS: &[u8] = &[0x82, 0x86, 0x84];

/// Returns a frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// Returns a HEADERS frame with a complete header block.
fn headers(block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, block)
}

/// Encodes an integer after the bits of its first byte.
fn integer(first: u8, prefix: u32, value: usize) -> Vec<u8> {
    let max = (1 << prefix) - 1;
    if value < max {
        return vec![first | u8::try_from(value).unwrap()];
    }
    let mut bytes = vec![first | u8::try_from(max).unwrap()];
    let mut rest = value - max;
    while rest >= 0x80 {
        bytes.push(0x80 | u8::try_from(rest % 0x80).unwrap());
        rest /= 0x80;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

/// Encodes a literal, plain or with the Huffman code.
fn string(text: &[u8], is_coded: bool) -> Vec<u8> {
    if is_coded {
        let coded = huffman::encode(text);
        return [integer(0x80, 7, coded.len()), coded].concat();
    }
    [&*integer(0, 7, text.len()), text].concat()
}

/// The first bytes of literal fields with new names: with incremental indexing, without indexing, never indexed.
const LITERALS: [u8; 3] = [0x40, 0x00, 0x10];

/// Returns a literal field with a name.
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[LITERALS[0]], &*string(name, true), &string(value, true)].concat()
}

#[test]
fn every_literal_representation_is_read() {
    for representation in LITERALS {
        for (codes_name, codes_value) in [(false, false), (false, true), (true, false), (true, true)] {
            let field = [&[representation], &*string(NAME, codes_name), &string(VALUE, codes_value)].concat();
            let block = [PSEUDO_FIELDS, &field, &literal(b"a", b"b")].concat();
            assert_eq!(find(&headers(&block)), Some(context()), "{representation} {codes_name} {codes_value}");
        }
    }
}

#[test]
fn other_representations_are_skipped() {
    let field = literal(NAME, VALUE);
    let others = [
        // Updates of the dynamic table's size: 0 and 4096.
        vec![0x20],
        integer(0x20, 5, 4096),
        // Entries of the static and the dynamic table.
        vec![0x80 | 61],
        integer(0x80, 7, 1000),
        // Values with names of the static and the dynamic table, in each representation.
        [&*integer(0x40, 6, 58), &string(b"an agent", false)].concat(),
        [&*integer(0x40, 6, 70), &string(VALUE, true)].concat(),
        [&*integer(0x00, 4, 62), &string(VALUE, false)].concat(),
        [&*integer(0x10, 4, 23), &string(b"a secret", false)].concat(),
        literal(b"traceparents", OTHER),
        literal(b"traceparen", OTHER),
        [&[0], &*string(b"TraceParent", false), &string(OTHER, false)].concat(),
        [&[0], &*string(b"", false), &string(b"", false)].concat(),
    ];
    for other in others {
        assert_eq!(find(&headers(&[&*other, &field].concat())), Some(context()), "{other:02x?}");
        assert_eq!(find(&headers(&[&*field, &other].concat())), Some(context()), "{other:02x?}");
        assert_eq!(find(&headers(&other)), None, "{other:02x?}");
    }
}

#[test]
fn two_fields_have_no_context() {
    let (field, other) = (literal(NAME, VALUE), literal(NAME, OTHER));
    assert_eq!(find(&headers(&[&*field, &field].concat())), None);
    assert_eq!(find(&headers(&[&*field, &other].concat())), None);
    assert_eq!(find(&headers(&[&*literal(NAME, b"none"), &field].concat())), None);
    // Each stream has its own context. The result is the first one.
    let second = [&*headers(PSEUDO_FIELDS), &headers(&field), &headers(&other)].concat();
    assert_eq!(find(&second), Some(context()));
    let ambiguous = [&*headers(&[&*field, &other].concat()), &headers(&field)].concat();
    assert_eq!(find(&ambiguous), None);
}

#[test]
fn invalid_values_have_no_context() {
    let padded = [b" ", VALUE].concat();
    let upper = VALUE.to_ascii_uppercase();
    let zeros = b"00-00000000000000000000000000000000-00f067aa0ba902b7-01";
    for value in [&VALUE[1..], &VALUE[..54], &padded, &padded[..55], zeros, b"", &[VALUE, b"-00"].concat()] {
        for is_coded in [false, true] {
            let field = [&[0], &*string(NAME, true), &string(value, is_coded)].concat();
            assert_eq!(find(&headers(&field)), None, "{}", value.escape_ascii());
        }
    }
    assert_eq!(find(&headers(&[&[0], &*string(NAME, true), &string(&upper, false)].concat())), None);
    // The extension of a later version may have characters with long codes, which the parser does not decode.
    let later = [b"cc", &VALUE[2..], b"-and-more"].concat();
    let mut coded = huffman::encode(&later[..56]);
    coded.extend([0xfe; 30]);
    let field = [&[0], &*string(NAME, true), &integer(0x80, 7, coded.len()), &coded].concat();
    assert_eq!(find(&headers(&field)), Some(context()));
    assert_eq!(find(&headers(&literal(NAME, &later))), Some(context()));
}

#[test]
fn malformed_blocks_have_no_context() {
    let field = literal(NAME, VALUE);
    for malformed in [
        // Index 0.
        &[0x80][..],
        // Integers without an end, and beyond any frame.
        &[0xff],
        &[0xff, 0x80],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0x00],
        &[0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        // Names and values beyond the end of the block.
        &[0x40],
        &[0x40, 0x01],
        &[0x40, 0x01, b'a'],
        &[0x40, 0x01, b'a', 0x05, b'b'],
    ] {
        assert_eq!(find(&headers(&[&*field, malformed].concat())), None, "{malformed:02x?}");
    }
}

#[test]
fn padding_and_priority_are_removed() {
    let field = literal(NAME, VALUE);
    let priority = [0, 0, 0, 0, 16];
    let padded = [&[7], &*field, &[0; 7]].concat();
    let both = [&[255], &priority[..], &field, &[0; 255]].concat();
    assert_eq!(find(&frame(HEADERS, END_HEADERS | PADDED, &padded)), Some(context()));
    assert_eq!(find(&frame(HEADERS, END_HEADERS | HAS_PRIORITY, &[&priority[..], &field].concat())), Some(context()));
    let both = frame(HEADERS, END_HEADERS | PADDED | HAS_PRIORITY, &both);
    assert_eq!(find(&both), Some(context()));
    // The packet may end within the padding.
    assert_eq!(find(&both[..both.len() - 255]), Some(context()));
    assert_eq!(find(&both[..both.len() - 256]), None);
    // More padding than bytes.
    for padding in [u8::try_from(field.len() + 1).unwrap(), 255] {
        assert_eq!(find(&frame(HEADERS, END_HEADERS | PADDED, &[&[padding], &*field].concat())), None);
    }
    assert_eq!(find(&frame(HEADERS, END_HEADERS | PADDED, &[])), None);
    assert_eq!(find(&frame(HEADERS, END_HEADERS | HAS_PRIORITY, &priority[..4])), None);
}

#[test]
fn a_header_block_continues_in_other_frames() {
    let field = literal(NAME, VALUE);
    for at in 0..=field.len() {
        let (first, second) = field.split_at(at);
        let payload = [frame(HEADERS, 0, first), frame(CONTINUATION, END_HEADERS, second)].concat();
        assert_eq!(find(&payload), Some(context()), "{at}");
        let empty = frame(CONTINUATION, 0, &[]);
        let payload = [frame(HEADERS, 0, first), empty, frame(CONTINUATION, END_HEADERS, second)].concat();
        assert_eq!(find(&payload), Some(context()), "{at}");
    }
    let (first, second) = field.split_at(20);
    let [start, end] = [frame(HEADERS, 0, first), frame(CONTINUATION, END_HEADERS, second)];
    // Another frame between, another stream, and a block without its start.
    assert_eq!(find(&[&*start, &frame(DATA, 0, b""), &end].concat()), None);
    let mut other_stream = end.clone();
    other_stream[8] = 3;
    assert_eq!(find(&[&*start, &other_stream].concat()), None);
    assert_eq!(find(&frame(CONTINUATION, END_HEADERS, &field)), None);
    let next_request = headers(&literal(NAME, VALUE));
    assert_eq!(
        find(&[frame(CONTINUATION, END_HEADERS, &literal(NAME, OTHER)), next_request].concat()),
        Some(context())
    );
    // The duplicate is in the second frame.
    let payload = [frame(HEADERS, 0, &field), frame(CONTINUATION, END_HEADERS, &field)].concat();
    assert_eq!(find(&payload), None);
}

#[test]
fn a_cut_value_is_never_accepted() {
    let block = [PSEUDO_FIELDS, &literal(NAME, VALUE)].concat();
    let block_end = PREFACE.len() + FRAME_HEADER + block.len();
    // A second field makes the first one ambiguous as soon as its name is visible.
    let second_name = block_end + 1 + string(NAME, true).len();
    let rests = [(vec![], usize::MAX), (literal(b"a", b"b"), usize::MAX), (literal(NAME, OTHER), second_name)];
    for (rest, is_ambiguous_from) in rests {
        let payload = [PREFACE, &headers(&[block.clone(), rest].concat()), &frame(DATA, 0, b"body")].concat();
        for cut in 0..payload.len() {
            let expected = (block_end..is_ambiguous_from).contains(&cut).then_some(context());
            assert_eq!(find(&payload[..cut]), expected, "{cut}");
        }
    }
}

#[test]
fn a_payload_begins_with_the_preface_or_a_frame() {
    let settings = [&[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0], &[0, 2, 0, 0, 0, 0][..]].concat();
    let window = [0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let ping = [&[0, 0, 8, PING, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
    let request = headers(&literal(NAME, VALUE));
    let payload = [PREFACE, &settings, &window, &ping, &frame(DATA, 0, b"data"), &request].concat();
    let starts = [0, 24, 39, 52, 69, 82, payload.len() - request.len()];
    for start in starts {
        assert_eq!(find(&payload[start..]), Some(context()), "{start}");
    }
    // In the preface, in each header, in the data and in the request.
    for start in [1, 12, 23, 25, 40, 53, 70, 80, payload.len() - request.len() + 1, payload.len() - 1] {
        assert_eq!(find(&payload[start..]), None, "{start}");
    }
}

#[test]
fn implausible_frames_have_no_context() {
    let request = headers(&literal(NAME, VALUE));
    let frames: &[&[u8]] = &[
        // HEADERS of stream 0, with the reserved bit, and of a length beyond the limit.
        &[&request[..8], &[0], &request[9..]].concat(),
        &[&request[..5], &[0x80], &request[6..]].concat(),
        &[&[1], &request[1..]].concat(),
        // Frames with wrong lengths or streams, and a frame of an extension.
        &[0, 0, 1, SETTINGS, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, SETTINGS, 0, 0, 0, 0, 1],
        &[0, 0, 0, PING, 0, 0, 0, 0, 0],
        &[0, 0, 0, GOAWAY, 0, 0, 0, 0, 0],
        &[0, 0, 0, WINDOW_UPDATE, 0, 0, 0, 0, 1],
        &[0, 0, 0, RST_STREAM, 0, 0, 0, 0, 1],
        &[0, 0, 0, PRIORITY, 0, 0, 0, 0, 1],
        &[0, 0, 0, PUSH_PROMISE, 0, 0, 0, 0, 1],
        &[0, 0, 0, DATA, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0x0a, 0, 0, 0, 0, 0],
    ];
    for bytes in frames {
        assert_eq!(find(&[bytes, &*request].concat()), None, "{bytes:02x?}");
    }
}

#[test]
fn the_fixtures_have_these_contexts() {
    assert_eq!(with_context("http2", find), ["continuation", "hyper", "padded", "tonic"]);
}

/// Returns parts of a header block.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let field = (
        prop::sample::select(LITERALS.to_vec()),
        any::<[bool; 2]>(),
        prop::sample::select(vec![VALUE, OTHER, b"none"]),
    )
        .prop_map(|(first, is_coded, value)| {
            [&[first], &*string(NAME, is_coded[0]), &string(value, is_coded[1])].concat()
        });
    prop_oneof![
        2 => field,
        2 => prop::sample::select(PSEUDO_FIELDS).prop_map(|byte| vec![byte]),
        2 => ("[a-z-]{1,9}", "[ -~]{0,20}").prop_map(|(name, value)| {
            [&[0x40], &*string(name.as_bytes(), false), &string(value.as_bytes(), false)].concat()
        }),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ]
}

proptest! {
    #[test]
    fn any_frames_keep_the_invariants(
        frames in prop::collection::vec((0..10_u8, any::<u8>(), prop::collection::vec(code(), 0..6)), 0..6),
    ) {
        let frames: Vec<Vec<u8>> =
            frames.into_iter().map(|(kind, flags, codes)| frame(kind, flags, &codes.concat())).collect();
        http2_invariants::check(&frames.concat());
    }

    #[test]
    fn a_context_is_found_among_any_fields(
        fields in prop::collection::vec(("[a-s-]{1,10}", "[ -~]{0,200}"), 0..15),
        place in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut fields: Vec<Vec<u8>> = fields
            .iter()
            .map(|(name, value)| [&[0], &*string(name.as_bytes(), false), &string(value.as_bytes(), false)].concat())
            .collect();
        fields.insert(place.index(fields.len() + 1), literal(NAME, VALUE));
        let block = fields.concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(block.len() + 1)).chain([0, block.len()]).collect();
        cuts.sort_unstable();
        let last = cuts.len() - 2;
        let frames = cuts.windows(2).enumerate().map(|(number, ends)| {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            frame(kind, if number == last { END_HEADERS } else { 0 }, &block[ends[0]..ends[1]])
        });
        let payload = frames.collect::<Vec<_>>().concat();
        prop_assume!(payload.len() <= LIMIT);
        prop_assert_eq!(find(&payload), Some(context()));
        http2_invariants::check(&payload);
    }
}
