//! An index of types by name, with five bytes per type.

use std::hash::{DefaultHasher, Hasher as _};

use hashbrown::HashTable;

use super::{Btf, BtfError, Kind, TypeId};

/// The first type of each name and kind.
#[derive(Default)]
pub(super) struct Names(HashTable<TypeId>);

impl Names {
    /// Indexes the named types of a BTF; all other fields of `btf` are complete.
    pub fn of(btf: &Btf<'_>, named: usize) -> Result<Self, BtfError> {
        let mut table = HashTable::with_capacity(named);
        for id in btf.own_ids() {
            let record = btf.record(id)?;
            let (Some(kind), name @ [_, ..]) = (record.kind, btf.string(&record)?) else { continue };
            let hash = hash(name, kind);
            if table.find(hash, |other| btf.is_named(*other, name, kind)).is_none() {
                table.insert_unique(hash, id, |id| btf.hash_of(*id));
            }
        }
        Ok(Self(table))
    }

    /// Returns the first type with this name and kind.
    pub fn find(&self, btf: &Btf<'_>, name: &str, kind: Kind) -> Option<TypeId> {
        let name = name.as_bytes();
        self.0.find(hash(name, kind), |id| btf.is_named(*id, name, kind)).copied()
    }
}

fn hash(name: &[u8], kind: Kind) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.write_u8(kind as u8);
    hasher.finish()
}

impl Btf<'_> {
    fn is_named(&self, id: TypeId, name: &[u8], kind: Kind) -> bool {
        self.record(id)
            .is_ok_and(|record| record.kind == Some(kind) && self.string(&record).is_ok_and(|own| own == name))
    }

    fn hash_of(&self, id: TypeId) -> u64 {
        let Ok(record) = self.record(id) else { return 0 };
        record.kind.map_or(0, |kind| hash(self.string(&record).unwrap_or_default(), kind))
    }
}
