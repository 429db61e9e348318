//! Kernel maps that are mapped into memory.

use std::{
    marker::PhantomData,
    mem::size_of,
    ops::Range,
    os::fd::AsFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use undercurrent_ebpf::abi::by_cpu::Entry;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The error of a map that could not be mapped into memory.
#[derive(Debug, thiserror::Error)]
#[error("cannot map `{map}` ({bytes} bytes) into memory: {source}; mapping array maps requires Linux 5.5")]
pub struct MapError {
    map: &'static str,
    bytes: usize,
    #[source]
    source: rustix::io::Errno,
}

/// An array map as words. Programs write concurrently: each word is read atomically, but words may differ by some
/// events. Clones share one mapping.
#[derive(Clone)]
pub struct Words(Arc<Mapping>);

struct Mapping {
    base: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: all accesses to the mapping are atomic, and any thread may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives access to the memory through atomics only.
unsafe impl Sync for Mapping {}

impl Words {
    /// Maps an array of `count` words.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn map(map: &'static str, descriptor: impl AsFd, count: usize) -> Result<Self, MapError> {
        let bytes = count * size_of::<u64>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the address is null and `MAP_FIXED` is unset, so the new mapping overlaps no memory in use.
        let address = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, descriptor, 0) };
        let address = address.map_err(|source| MapError { map, bytes, source })?;
        let base = NonNull::new(address.cast()).ok_or(MapError { map, bytes, source: rustix::io::Errno::FAULT })?;
        Ok(Self(Arc::new(Mapping { base, count })))
    }

    /// Returns the number of words in the map.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns a range of the words.
    ///
    /// # Panics
    /// If the range exceeds the map.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> &[AtomicU64] {
        // SAFETY: the mapping has `count` words, starts at a page and so is aligned, and lives as long as `self`.
        let words = unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.count) };
        &words[range]
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping with this length, and slices borrow `self`, so no reference exists.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}

/// An array map with one entry for each possible CPU.
pub struct ByCpu<T> {
    words: Words,
    entry: PhantomData<T>,
}

impl<T: FromBytes + Immutable + KnownLayout> ByCpu<T> {
    /// Words of a value.
    const VALUE: usize = {
        assert!(size_of::<T>().is_multiple_of(8), "values consist of words");
        size_of::<T>() / 8
    };
    /// Words of an entry.
    const ENTRY: usize = size_of::<Entry<T>>() / 8;

    /// Maps an array of `cpus` entries.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn map(map: &'static str, descriptor: impl AsFd, cpus: usize) -> Result<Self, MapError> {
        Ok(Self::from_words(Words::map(map, descriptor, Self::words(cpus))?))
    }

    /// Returns the number of words of `cpus` entries.
    #[must_use]
    pub const fn words(cpus: usize) -> usize {
        cpus * Self::ENTRY
    }

    /// Interprets words as entries.
    #[must_use]
    pub const fn from_words(words: Words) -> Self {
        Self { words, entry: PhantomData }
    }

    /// Calls `visit` with a copy of each CPU's entry. Only one copy exists at any time.
    pub fn for_each(&self, mut visit: impl FnMut(usize, &T)) {
        let mut copy = vec![0_u64; Self::VALUE];
        for (cpu, entry) in self.words.slice(0..self.words.count()).chunks_exact(Self::ENTRY).enumerate() {
            for (word, shared) in copy.iter_mut().zip(entry) {
                *word = shared.load(Ordering::Relaxed);
            }
            if let Ok(entry) = T::ref_from_bytes(copy.as_slice().as_bytes()) {
                visit(cpu, entry);
            }
        }
    }
}
