//! Damaged BTF: the reader may fail or misread, but it never panics and always terminates.

use proptest::{prelude::*, sample::Index};

use super::{
    super::{Btf, BtfError, Kind, TypeId, header::HEADER, record::HEAD},
    FUNCTIONS, KERNELS, TRACEPOINTS,
    builder::Builder,
    targets,
};

/// Damage to raw bytes.
#[derive(Clone, Debug)]
enum Damage {
    Byte(Index, u8),
    Word(Index, u32),
    /// A reference, a count or a width just out of bounds.
    Nudge(Index, i8),
    Cut(Index),
}

impl Damage {
    fn apply(&self, raw: &mut Vec<u8>) {
        let word_at = |raw: &Vec<u8>, index: &Index| index.index((raw.len() / 4).max(1)) * 4;
        match self {
            Self::Byte(index, value) if !raw.is_empty() => {
                let at = index.index(raw.len());
                raw[at] = *value;
            }
            Self::Word(index, value) => {
                let at = word_at(raw, index);
                if let Some(word) = raw.get_mut(at..at + 4) {
                    word.copy_from_slice(&value.to_ne_bytes());
                }
            }
            Self::Nudge(index, by) => {
                let at = word_at(raw, index);
                if let Some(word) = raw.get_mut(at..at + 4).and_then(|word| word.first_chunk_mut()) {
                    *word = u32::from_ne_bytes(*word).wrapping_add_signed(i32::from(*by)).to_ne_bytes();
                }
            }
            Self::Cut(index) if !raw.is_empty() => raw.truncate(index.index(raw.len())),
            Self::Byte(..) | Self::Cut(_) => {}
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Byte(at, value)),
        4 => (any::<Index>(), any::<u32>()).prop_map(|(at, value)| Damage::Word(at, value)),
        8 => (any::<Index>(), any::<i8>()).prop_map(|(at, by)| Damage::Nudge(at, by)),
        1 => any::<Index>().prop_map(Damage::Cut),
    ]
}

/// Calls all lookups.
fn exercise(btf: &Btf<'_>) {
    for path in ["tstamp", "tstamp_type", "mono_delivery_time", "headers.protocol", "ts.0", "__sk_common.skc_family"] {
        for name in ["sk_buff", "sock", "scm_timestamping_internal", "ktime_t"] {
            let _ = btf.member(name, path);
        }
    }
    for name in FUNCTIONS {
        let _ = btf.function(name);
    }
    for name in TRACEPOINTS {
        let _ = btf.tracepoint(name);
    }
    for name in ["skb_drop_reason", "skb_drop_reason_subsys", "cgroup_subsys_id"] {
        let _ = btf.enumeration(name);
    }
    for id in 0..u32::try_from(btf.count()).unwrap_or(u32::MAX).saturating_add(2) {
        let _ = btf.size(TypeId(id));
    }
    btf.sparse(&targets()).into_aya().expect("always sound");
}

proptest! {
    #[test]
    fn damaged_btf_does_not_panic(
        kernel in 0..KERNELS.len(),
        damages in prop::collection::vec(damage(), 1..20),
        // The reader rejects most damage to the header; most runs keep the header intact.
        spared in prop_oneof![1 => Just(0_usize), 9 => Just(24)],
    ) {
        let (header, body) = KERNELS[kernel].raw.split_at(spared);
        let mut damaged = body.to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut damaged));
        let raw = [header, &damaged].concat();
        if let Ok(btf) = Btf::parse(&raw) {
            exercise(&btf);
        }
        let sound = Btf::parse(KERNELS[0].raw).expect("sound BTF");
        if let Ok(module) = Btf::parse_module(&raw, &sound) {
            exercise(&module);
        }
    }

    #[test]
    fn noise_does_not_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let raw = [&KERNELS[0].raw[..8], &noise].concat();
        for raw in [&noise, &raw] {
            if let Ok(btf) = Btf::parse(raw) {
                exercise(&btf);
            }
        }
    }
}

#[test]
fn invalid_headers_are_errors() {
    let sound = KERNELS[0].raw;
    let with = |at: usize, value: u8| {
        let mut raw = sound.to_vec();
        raw[at] = value;
        Btf::parse(&raw).err()
    };
    assert!(matches!(Btf::parse(b"\x7fELF").err(), Some(BtfError::NotBtf(_))));
    assert!(matches!(Btf::parse(&[]).err(), Some(BtfError::NotBtf(_))));
    assert!(matches!(Btf::parse(&sound[..23]).err(), Some(BtfError::NotBtf(_))));
    assert!(matches!(with(2, 2), Some(BtfError::NotBtf(_))), "a later version");
    let mut foreign = sound.to_vec();
    foreign.swap(0, 1);
    assert_eq!(Btf::parse(&foreign).err(), Some(BtfError::ForeignByteOrder));
    let last = sound.len() - 1;
    assert!(matches!(with(last, b'x'), Some(BtfError::NotBtf(_))), "strings without a terminator");
}

#[test]
fn unknown_kinds_are_skipped_by_the_length_in_the_layout_section() {
    let mut builder = Builder::new();
    let int = builder.int(4, 0, 32);
    // This record has the length of the unknown kind; its kind is overwritten below.
    builder.add(Kind::Array, "", false, 0, 0, &[int.0, int.0, 1]);
    let known = builder.compound(Kind::Struct, "known", false, 4, &[("id".to_owned(), int, 0)]);
    let mut raw = builder.build();
    let future = HEADER + HEAD + 4;
    raw[future..future + HEAD].copy_from_slice(&[[0; 4], ((20_u32 << 24) | 3).to_ne_bytes(), [0; 4]].concat());
    assert_eq!(Btf::parse(&raw).err(), Some(BtfError::UnknownKind { at: HEAD + 4, kind: 20 }));

    // The longer header of 7.3 and, after the strings, four bytes per kind.
    let (fixed, element) = (6_u8, 2_u8);
    let layout = [[0; 20 * 4].as_slice(), &[fixed, element, 0, 0]].concat();
    let layout_at = u32::try_from(raw.len() - HEADER).expect("small");
    raw.splice(HEADER..HEADER, [layout_at.to_ne_bytes(), (layout.len() as u32).to_ne_bytes()].concat());
    raw[4] = 32;
    raw.extend(&layout);
    let btf = Btf::parse(&raw).expect("sound BTF");
    assert_eq!(btf.find("known", Kind::Struct), Some(known));
    assert_eq!(btf.count(), 4);
}
