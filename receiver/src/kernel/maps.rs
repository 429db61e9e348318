//! Kernel maps, read in place.

use std::{
    marker::PhantomData,
    mem::size_of,
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Why a map could not be mapped.
#[derive(Debug, thiserror::Error)]
#[error("cannot map `{map}` ({bytes} bytes) into memory: {source}; array maps can be mapped from Linux 5.5 on")]
pub struct MapError {
    map: &'static str,
    bytes: usize,
    #[source]
    source: rustix::io::Errno,
}

/// An array map with one entry for each possible CPU. Programs go on writing while it is read: each word is whole, and
/// words of one entry may be some events apart.
pub struct ByCpu<T> {
    base: NonNull<AtomicU64>,
    cpus: usize,
    entry: PhantomData<T>,
}

// SAFETY: the mapping is only read, through atomics, and belongs to no thread.
unsafe impl<T> Send for ByCpu<T> {}

impl<T: FromBytes + Immutable + KnownLayout> ByCpu<T> {
    const WORDS: usize = {
        assert!(size_of::<T>().is_multiple_of(8), "the kernel rounds entries up to eight bytes");
        size_of::<T>() / 8
    };

    /// Bytes of kernel memory that such a map takes.
    #[must_use]
    pub const fn bytes(cpus: usize) -> usize {
        cpus * size_of::<T>()
    }

    /// Maps an array of `cpus` entries.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn map(map: &'static str, descriptor: impl AsFd, cpus: usize) -> Result<Self, MapError> {
        let bytes = Self::bytes(cpus);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, descriptor, 0) };
        let address = address.map_err(|source| MapError { map, bytes, source })?;
        let base = NonNull::new(address.cast()).ok_or(MapError { map, bytes, source: rustix::io::Errno::FAULT })?;
        Ok(Self { base, cpus, entry: PhantomData })
    }

    /// Calls `visit` with a copy of each CPU's entry. One copy exists at a time.
    pub fn for_each(&self, mut visit: impl FnMut(usize, &T)) {
        let mut words = vec![0_u64; Self::WORDS];
        for cpu in 0..self.cpus {
            for (index, word) in words.iter_mut().enumerate() {
                // SAFETY: inside the mapping, which has `cpus` entries.
                let address = unsafe { self.base.add(cpu * Self::WORDS + index) };
                // SAFETY: the mapping lives as long as `self`, and is aligned since it begins at a page.
                let shared = unsafe { address.as_ref() };
                *word = shared.load(Ordering::Relaxed);
            }
            let bytes = zerocopy::IntoBytes::as_bytes(words.as_slice());
            if let Ok(entry) = T::ref_from_bytes(bytes) {
                visit(cpu, entry);
            }
        }
    }
}

impl<T> Drop for ByCpu<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, to which no reference is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.cpus * size_of::<T>()) };
    }
}
