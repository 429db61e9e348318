//! Sorts the forward declarations in the object's BTF by name.
//!
//! LLVM appends one forward declaration for each struct that only pointers refer to, in the order of heap addresses. Without the
//! sort, the bytes of an object with two or more of them differ from run to run.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use object::{Object as _, ObjectSection as _};

const MAGIC: u32 = 0xeb9f;
/// `struct btf_type`: the name's offset, kind and length, and a size or type.
const TYPE_SIZE: usize = 12;

// Kinds, by their numbers in the kernel's `include/uapi/linux/btf.h`.
const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FORWARD: u32 = 7;
const FUNCTION_PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const FLOAT: u32 = 16;
const DECLARATION_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// Offsets of the words of a type in the section.
struct Type {
    start: usize,
    kind: u32,
    /// Offsets of the words that refer to a type.
    types: Vec<usize>,
    /// Offsets of the words that refer to a string.
    names: Vec<usize>,
}

/// Sorts the forward declarations that end the BTF of an ELF object, in place.
pub fn sort_forward_declarations(object: &mut [u8]) -> anyhow::Result<()> {
    let range = {
        let file = object::File::parse(&*object).context("not an ELF object")?;
        let section = file.section_by_name(".BTF").context("the object has no BTF: was it linked with --btf?")?;
        section.file_range().context("the BTF section is empty")?
    };
    let (start, size) = (usize::try_from(range.0)?, usize::try_from(range.1)?);
    sort(object.get_mut(start..start + size).context("the BTF section lies beyond the object")?)
}

fn sort(bytes: &mut [u8]) -> anyhow::Result<()> {
    ensure!(word(bytes, 0)? & 0xffff == MAGIC, "the BTF section has no BTF header");
    let body = word(bytes, 4)? as usize;
    let types = body + word(bytes, 8)? as usize;
    let strings = body + word(bytes, 16)? as usize;
    let list = walk(bytes, types, types + word(bytes, 12)? as usize)?;

    let first = list.len() - list.iter().rev().take_while(|entry| entry.kind == FORWARD).count();
    let mut sorted = BTreeMap::new();
    for (index, entry) in list.iter().enumerate().skip(first) {
        let name_offset = word(bytes, entry.start)?;
        let name = string(bytes, strings + name_offset as usize)?.to_vec();
        sorted.insert((name, index), (name_offset, bytes[entry.start..entry.start + TYPE_SIZE].to_vec()));
    }
    let mut numbers = BTreeMap::new();
    for (to, ((_, from), (_, content))) in (first..).zip(&sorted) {
        // Type ids start at one: zero is `void`.
        numbers.insert(u32::try_from(from + 1)?, u32::try_from(to + 1)?);
        bytes[list[to].start..list[to].start + TYPE_SIZE].copy_from_slice(content);
    }
    let offsets = sort_strings(bytes, strings, sorted.into_iter().map(|((name, _), (offset, _))| (name, offset)))?;
    replace(bytes, list.iter().flat_map(|entry| &entry.types), &numbers)?;
    replace(bytes, list.iter().flat_map(|entry| &entry.names), &offsets)
}

/// Sorts runs of adjacent names in the string table. Returns the new offset for each old one.
fn sort_strings(
    bytes: &mut [u8],
    table: usize,
    names: impl Iterator<Item = (Vec<u8>, u32)>,
) -> anyhow::Result<BTreeMap<u32, u32>> {
    let by_offset: BTreeMap<u32, Vec<u8>> = names.map(|(name, offset)| (offset, name)).collect();
    let mut runs: Vec<BTreeSet<(Vec<u8>, u32)>> = Vec::new();
    let mut end = None;
    for (offset, name) in by_offset {
        let next = offset + u32::try_from(name.len() + 1)?;
        match runs.last_mut().filter(|_| end == Some(offset)) {
            Some(run) => drop(run.insert((name, offset))),
            None => runs.push(BTreeSet::from([(name, offset)])),
        }
        end = Some(next);
    }
    let mut moved = BTreeMap::new();
    for run in runs {
        let mut to = run.iter().map(|&(_, offset)| offset).min().unwrap_or_default();
        for (name, from) in run {
            let at = table + to as usize;
            bytes[at..at + name.len()].copy_from_slice(&name);
            bytes[at + name.len()] = 0;
            moved.insert(from, to);
            to += u32::try_from(name.len() + 1)?;
        }
    }
    Ok(moved)
}

fn replace<'a>(
    bytes: &mut [u8],
    places: impl Iterator<Item = &'a usize>,
    with: &BTreeMap<u32, u32>,
) -> anyhow::Result<()> {
    for &at in places {
        if let Some(new) = with.get(&word(bytes, at)?) {
            bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
    }
    Ok(())
}

/// Returns every type between two offsets, in order.
fn walk(bytes: &[u8], mut at: usize, end: usize) -> anyhow::Result<Vec<Type>> {
    let mut list = Vec::new();
    while at < end {
        let info = word(bytes, at + 4)?;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        ensure!((INT..=ENUM64).contains(&kind), "the BTF has a type of unknown kind {kind}");
        let tail = at + TYPE_SIZE;
        let mut entry = Type { start: at, kind, types: Vec::new(), names: vec![at] };
        if !matches!(kind, INT | ARRAY | STRUCT | UNION | ENUM | FORWARD | SECTION | FLOAT | ENUM64) {
            entry.types.push(at + 8);
        }
        // Items after the type: number, size, and the offsets of a name and a type in each item.
        let (items, size, name, reference): (usize, usize, Option<usize>, Option<usize>) = match kind {
            INT | VARIABLE | DECLARATION_TAG => (1, 4, None, None),
            ARRAY => (1, 12, None, None),
            STRUCT | UNION => (count, 12, Some(0), Some(4)),
            ENUM => (count, 8, Some(0), None),
            FUNCTION_PROTOTYPE => (count, 8, Some(0), Some(4)),
            SECTION => (count, 12, None, Some(0)),
            ENUM64 => (count, 12, Some(0), None),
            _ => (0, 0, None, None),
        };
        if kind == ARRAY {
            entry.types.extend([tail, tail + 4]);
        }
        for item in (0..items).map(|item| tail + item * size) {
            entry.names.extend(name.map(|name| item + name));
            entry.types.extend(reference.map(|reference| item + reference));
        }
        at = tail + items * size;
        list.push(entry);
    }
    ensure!(at == end, "the last type of the BTF is truncated");
    Ok(list)
}

fn word(bytes: &[u8], at: usize) -> anyhow::Result<u32> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk()).context("the BTF is truncated")?;
    Ok(u32::from_le_bytes(*bytes))
}

fn string(bytes: &[u8], at: usize) -> anyhow::Result<&[u8]> {
    let rest = bytes.get(at..).context("the BTF refers to a string beyond its end")?;
    let end = rest.iter().position(|&byte| byte == 0).context("a string of the BTF has no end")?;
    Ok(&rest[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POINTER: u32 = 2;

    /// Returns BTF of a struct with pointers to structs that have only forward declarations, in the given order.
    fn pointers(declared: &[&str]) -> Vec<u8> {
        let number = |length: usize| u32::try_from(length).unwrap();
        let mut names = declared.to_vec();
        names.sort_unstable();
        let (count, mut types, mut strings) = (names.len(), Vec::new(), b"\0holder\0".to_vec());
        for name in &names {
            let declaration = declared.iter().position(|other| other == name).unwrap();
            types.extend([0, POINTER << 24, number(count + 2 + declaration)]);
        }
        types.extend([1, STRUCT << 24 | number(count), 8]);
        types.extend((1..=count).flat_map(|pointer| [1, number(pointer), 0]));
        for name in declared {
            types.extend([number(strings.len()), FORWARD << 24, 0]);
            strings.extend([name.as_bytes(), b"\0"].concat());
        }
        let size = number(types.len() * 4);
        let header = [MAGIC | 1 << 16, 24, 0, size, size, number(strings.len())];
        let words = header.into_iter().chain(types);
        words.flat_map(u32::to_le_bytes).chain(strings).collect()
    }

    proptest! {
        #[test]
        fn every_order_becomes_sorted(
            declared in Just(vec!["bpf_flow_keys", "bpf_sock", "bpf_spin_lock", "x"]).prop_shuffle(),
        ) {
            let mut sorted = declared.clone();
            sorted.sort_unstable();
            let mut bytes = pointers(&declared);
            sort(&mut bytes).unwrap();
            prop_assert_eq!(bytes, pointers(&sorted));
        }

        #[test]
        fn damaged_btf_does_not_panic(at in 0usize..140, value: u8) {
            let mut bytes = pointers(&["bpf_sock", "bpf_flow_keys"]);
            let at = at % bytes.len();
            bytes[at] = value;
            // Sorting is idempotent or fails.
            if sort(&mut bytes).is_ok() {
                let sorted = bytes.clone();
                sort(&mut bytes).unwrap();
                prop_assert_eq!(bytes, sorted);
            }
        }
    }

    #[test]
    fn without_forward_declarations_nothing_changes() {
        let mut bytes = pointers(&[]);
        let before = bytes.clone();
        sort(&mut bytes).unwrap();
        assert_eq!(bytes, before);
    }

    #[test]
    fn an_unterminated_name_is_an_error() {
        let mut bytes = pointers(&["bpf_sock", "bpf_flow_keys"]);
        *bytes.last_mut().unwrap() = b's';
        assert!(sort(&mut bytes).unwrap_err().to_string().contains("no end"));
    }

    #[test]
    fn bytes_without_btf_header_are_an_error() {
        assert!(sort(&mut [0; 24]).is_err());
        assert!(sort(&mut []).is_err());
    }
}
