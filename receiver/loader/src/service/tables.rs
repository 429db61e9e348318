//! Access to hash maps with keys and values as bytes.

use std::borrow::BorrowMut;

use aya::maps::{HashMap, Map, MapData, MapError};
use undercurrent_ebpf::abi::{
    filter::FilterKey,
    group::Group,
    interface::{Interface, NAME},
};

use undercurrent_kernel::messages::{Entries, Table};

/// A hash map with known sizes of keys and values.
pub trait Bytes {
    /// Inserts an entry, or replaces it.
    ///
    /// # Errors
    /// If the kernel refuses, or the key or the value has a wrong size.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), MapError>;

    /// Removes an entry.
    ///
    /// # Errors
    /// If the kernel refuses, or the key has a wrong size.
    fn remove(&mut self, key: &[u8]) -> Result<(), MapError>;

    /// Looks up an entry.
    ///
    /// # Errors
    /// If the kernel refuses, or the key has a wrong size.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MapError>;

    /// Returns all entries. Concurrent changes may hide entries.
    ///
    /// # Errors
    /// If the kernel refuses to read the map.
    fn entries(&self) -> Result<Entries, MapError>;
}

impl<T: BorrowMut<MapData>, const K: usize, const V: usize> Bytes for HashMap<T, [u8; K], [u8; V]> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        let value: [u8; V] =
            value.try_into().map_err(|_| MapError::InvalidValueSize { size: value.len(), expected: V })?;
        Self::insert(self, sized::<K>(key)?, value, 0)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), MapError> {
        Self::remove(self, &sized::<K>(key)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        match Self::get(self, &sized::<K>(key)?, 0) {
            Ok(value) => Ok(Some(value.to_vec())),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn entries(&self) -> Result<Entries, MapError> {
        let entry = |entry: Result<([u8; K], [u8; V]), MapError>| match entry {
            Ok((key, value)) => Some(Ok((key.to_vec(), value.to_vec()))),
            // A program or another request removed the entry meanwhile.
            Err(MapError::KeyNotFound) => None,
            Err(error) => Some(Err(error)),
        };
        self.iter().filter_map(entry).collect()
    }
}

fn sized<const K: usize>(key: &[u8]) -> Result<[u8; K], MapError> {
    key.try_into().map_err(|_| MapError::InvalidKeySize { size: key.len(), expected: K })
}

/// Returns a map with access by bytes.
///
/// # Errors
/// If the map is not a hash map with the expected sizes.
pub(super) fn open(table: Table, map: &mut Map) -> Result<Box<dyn Bytes + '_>, MapError> {
    const WORD: usize = size_of::<u32>();
    Ok(match table {
        Table::FilterMap => Box::new(HashMap::<_, [u8; size_of::<FilterKey>()], [u8; WORD]>::try_from(map)?),
        Table::Groups => Box::new(HashMap::<_, [u8; size_of::<Group>()], [u8; WORD]>::try_from(map)?),
        Table::Interfaces => Box::new(HashMap::<_, [u8; size_of::<Interface>()], [u8; NAME]>::try_from(map)?),
        Table::NicIndices => Box::new(HashMap::<_, [u8; size_of::<Interface>()], [u8; WORD]>::try_from(map)?),
    })
}
