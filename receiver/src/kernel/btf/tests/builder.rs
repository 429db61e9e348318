//! Writes BTF, record by record.

use std::collections::HashMap;

use super::super::{
    Kind, TypeId,
    header::HEADER,
    sparse::{append, close},
};

/// BTF in the making.
pub struct Builder {
    raw: Vec<u8>,
    strings: Vec<u8>,
    known: HashMap<String, u32>,
    next: u32,
    first_string: u32,
}

impl Builder {
    /// BTF that stands by itself.
    pub fn new() -> Self {
        let known = HashMap::from([(String::new(), 0)]);
        Self { raw: vec![0; HEADER], strings: vec![0], known, next: 1, first_string: 0 }
    }

    /// BTF of a module, after a kernel's raw BTF with so many types, `void` included.
    pub fn after(kernel: &[u8], types: usize) -> Self {
        let first_string = u32::from_ne_bytes(*kernel[20..].first_chunk().expect("a header"));
        let next = u32::try_from(types).expect("few types");
        Self { strings: Vec::new(), next, first_string, ..Self::new() }
    }

    /// Adds a record of any kind; `rest` is what follows its head.
    pub fn add(&mut self, kind: Kind, name: &str, flag: bool, count: usize, size_or_type: u32, rest: &[u32]) -> TypeId {
        let name = self.string(name);
        let count = u32::try_from(count).expect("a small count");
        append(&mut self.raw, [name, u32::from(flag) << 31 | (kind as u32) << 24 | count, size_or_type]);
        for word in rest {
            append(&mut self.raw, [*word]);
        }
        self.next += 1;
        TypeId(self.next - 1)
    }

    /// Adds an int of so many bytes that holds `bits` from bit `shift` on.
    pub fn int(&mut self, size: u32, shift: u32, bits: u32) -> TypeId {
        self.add(Kind::Int, "int", false, 0, size, &[shift << 16 | bits])
    }

    /// Adds a struct or union of members, each with its name, type and offset word.
    pub fn compound(
        &mut self,
        kind: Kind,
        name: &str,
        flag: bool,
        size: u32,
        members: &[(String, TypeId, u32)],
    ) -> TypeId {
        let rest: Vec<u32> = members.iter().flat_map(|(name, id, offset)| [self.string(name), id.0, *offset]).collect();
        self.add(kind, name, flag, members.len(), size, &rest)
    }

    /// The offset of a string.
    pub fn string(&mut self, string: &str) -> u32 {
        if let Some(offset) = self.known.get(string) {
            return *offset;
        }
        let offset = self.first_string + u32::try_from(self.strings.len()).expect("short strings");
        self.strings.extend(string.as_bytes());
        self.strings.push(0);
        self.known.insert(string.to_owned(), offset);
        offset
    }

    /// The raw bytes.
    pub fn build(mut self) -> Vec<u8> {
        close(&mut self.raw, &self.strings);
        self.raw
    }
}
