//! Comparison of all struct members and enumerators with another BTF reader (btfparse).

use std::collections::{HashMap, HashSet};

use btfparse::{Error, ErrorKind, Integer32Value, Integer64Value, Offset, Readable, TypeInformation, TypeVariant};

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

/// Parses raw BTF with the other reader.
pub fn types(raw: &[u8]) -> TypeInformation {
    TypeInformation::new(&Raw(raw)).expect("sound BTF")
}

/// Returns the names of a struct's members, including those in anonymous members, from the other reader.
pub fn member_names(types: &TypeInformation, name: &str) -> Vec<String> {
    let id = types.get().iter().find_map(|(id, variant)| match variant {
        TypeVariant::Struct(_) if types.name_of(*id).as_deref() == Some(name) => Some(*id),
        _ => None,
    });
    let mut names = Vec::new();
    collect(types, id.expect("an existing struct"), &mut names);
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
fn member_offsets_match_another_reader() {
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
            // A lookup by name returns only the first type.
            let Some(name) = other.name_of(id).filter(|name| uses[name] == 1) else { continue };
            let mut names = Vec::new();
            collect(&other, id, &mut names);
            // Macros declare a few names repeatedly in anonymous members.
            let unique: HashSet<&String> = names.iter().collect();
            for member in unique.iter().filter(|member| names.iter().filter(|name| name == *member).count() == 1) {
                let found = btf.member(&name, member).unwrap_or_else(|error| panic!("{release}: {error}"));
                let (inner, offset) = other.offset_of(id, member).expect("a member in the other reader");
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

/// Returns the names and numbers of an enumeration from the other reader.
fn numbers(variant: &TypeVariant) -> Option<Vec<(String, i64)>> {
    Some(match variant {
        TypeVariant::Enum(own) => {
            let number = |value| match value {
                Integer32Value::Signed(number) => number.into(),
                Integer32Value::Unsigned(number) => number.into(),
            };
            own.named_value_list().iter().map(|one| (one.name.clone(), number(one.value))).collect()
        }
        TypeVariant::Enum64(own) => {
            let number = |value| match value {
                Integer64Value::Signed(number) => number,
                Integer64Value::Unsigned(number) => number.cast_signed(),
            };
            own.named_value_list().iter().map(|one| (one.name.clone(), number(one.value))).collect()
        }
        _ => return None,
    })
}

#[test]
fn enumerators_match_another_reader() {
    on_every_kernel(|release, raw| {
        let (btf, other) = (parse(raw), types(raw));
        let named = |(id, variant): (&u32, &TypeVariant)| Some((other.name_of(*id)?, numbers(variant)?));
        let mut all: HashMap<String, Vec<Vec<(String, i64)>>> = HashMap::new();
        other.get().iter().filter_map(named).for_each(|(name, numbers)| all.entry(name).or_default().push(numbers));
        let (mut compared, mut signed) = (0, 0);
        // A lookup by name returns only the first type.
        for (name, numbers) in all.iter().filter(|(_, of_name)| of_name.len() == 1) {
            let found = btf.enumeration(name).unwrap_or_else(|| panic!("no enumeration {name} on {release}"));
            assert!(
                found.iter().copied().eq(numbers[0].iter().map(|(name, number)| (&**name, *number))),
                "{name} on {release}"
            );
            compared += found.len();
            signed += found.iter().filter(|(_, number)| *number < 0).count();
        }
        assert!(compared > 10, "only {compared} numbers compared on {release}");
        eprintln!("{release}: {compared} numbers compared, {signed} of them negative");
        assert_eq!(btf.enumeration("sk_buff"), None);
    });
}
