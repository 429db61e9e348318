//! Every member of every struct, compared with another reader of BTF.

use std::collections::{HashMap, HashSet};

use btfparse::{Error, ErrorKind, Offset, Readable, TypeInformation, TypeVariant};

use super::{super::Extent, on_every_kernel, parse};

struct Raw<'a>(&'a [u8]);

impl Readable for Raw<'_> {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> btfparse::Result<()> {
        let tail = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..));
        let bytes = tail.and_then(|tail| tail.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or_else(|| Error::new(ErrorKind::InvalidOffset, "past the end"))?);
        Ok(())
    }
}

/// The other reader's view of raw BTF.
pub fn types(raw: &[u8]) -> TypeInformation {
    TypeInformation::new(&Raw(raw)).expect("sound BTF")
}

/// The names of a struct's members, those of its anonymous members included, as the other reader has them.
pub fn member_names(types: &TypeInformation, name: &str) -> Vec<String> {
    let id = types.get().iter().find_map(|(id, variant)| match variant {
        TypeVariant::Struct(_) if types.name_of(*id).as_deref() == Some(name) => Some(*id),
        _ => None,
    });
    let mut names = Vec::new();
    collect(types, id.expect("the struct is there"), &mut names);
    names
}

fn collect(types: &TypeInformation, id: u32, names: &mut Vec<String>) {
    let variant = &types.get()[&id];
    let members = match variant {
        TypeVariant::Struct(own) => own.member_list(),
        TypeVariant::Union(own) => own.member_list(),
        _ => return,
    };
    for member in members {
        match member.name() {
            Some(name) => names.push(name),
            None => collect(types, member.tid(), names),
        }
    }
}

#[test]
fn members_lie_where_another_reader_finds_them() {
    on_every_kernel(|release, raw| {
        let (btf, other) = (parse(raw), types(raw));
        let mut uses: HashMap<String, usize> = HashMap::new();
        let compounds = || {
            let is_compound = |variant: &TypeVariant| matches!(variant, TypeVariant::Struct(_) | TypeVariant::Union(_));
            other.get().iter().filter(move |(_, variant)| is_compound(variant)).map(|(id, _)| *id)
        };
        for id in compounds() {
            *uses.entry(other.name_of(id).unwrap_or_default()).or_default() += 1;
        }
        let mut compared = 0;
        for id in compounds() {
            // By name only the first of several is found.
            let Some(name) = other.name_of(id).filter(|name| uses[name] == 1) else { continue };
            let mut names = Vec::new();
            collect(&other, id, &mut names);
            // Macros make a few anonymous members repeat a name.
            let unique: HashSet<&String> = names.iter().collect();
            for member in unique.iter().filter(|member| names.iter().filter(|name| name == *member).count() == 1) {
                let found = btf.member(&name, member).unwrap_or_else(|error| panic!("{release}: {error}"));
                let (inner, offset) = other.offset_of(id, member).expect("the other reader finds it too");
                match (found.extent, offset) {
                    (Extent::Bytes { offset, size }, Offset::ByteOffset(expected)) => {
                        assert_eq!(offset, expected, "{name}.{member} on {release}");
                        if let Ok(bytes) = other.size_of(inner) {
                            assert_eq!(size, bytes as u64, "{name}.{member} on {release}");
                        }
                    }
                    (Extent::Bits { offset, width }, Offset::BitOffsetAndSize(expected, bits)) => {
                        assert_eq!((offset, width), (u64::from(expected), bits), "{name}.{member} on {release}");
                    }
                    different => panic!("{name}.{member} on {release}: {different:?}"),
                }
                compared += 1;
            }
        }
        assert!(compared > 250, "only {compared} members compared on {release}");
    });
}
