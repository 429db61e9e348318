//! A builder of BTF, record by record.

use std::collections::HashMap;

use super::super::{
    Kind, TypeId,
    header::HEADER,
    sparse::{append, close},
};

/// A builder of raw BTF.
pub struct Builder {
    raw: Vec<u8>,
    strings: Vec<u8>,
    known: HashMap<String, u32>,
    next: u32,
    first_string: u32,
}

impl Builder {
    /// Creates a builder of BTF without a base.
    pub fn new() -> Self {
        let known = HashMap::from([(String::new(), 0)]);
        Self { raw: vec![0; HEADER], strings: vec![0], known, next: 1, first_string: 0 }
    }

    /// Creates a builder of a module's BTF. `types` is the number of the kernel's types, including `void`.
    pub fn after(kernel: &[u8], types: usize) -> Self {
        let first_string = u32::from_ne_bytes(*kernel[20..].first_chunk().expect("a header"));
        let next = u32::try_from(types).expect("few types");
        Self { strings: Vec::new(), next, first_string, ..Self::new() }
    }

    /// Adds a record of any kind; `rest` is the data after the head.
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

    /// Adds an int of `size` bytes that contains `bits` bits from bit `shift`.
    pub fn int(&mut self, size: u32, shift: u32, bits: u32) -> TypeId {
        self.add(Kind::Int, "int", false, 0, size, &[shift << 16 | bits])
    }

    /// Adds a struct or union. A member is a name, a type and an offset word.
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

    /// Adds a string and returns its offset.
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

    /// Returns the raw bytes.
    pub fn build(mut self) -> Vec<u8> {
        close(&mut self.raw, &self.strings);
        self.raw
    }
}
