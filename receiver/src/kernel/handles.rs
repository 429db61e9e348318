//! Access to the loaded object: maps, rings, and variables that programs read.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    Kernel, KernelError,
    choices::Choices,
    clock::WallClock,
    epoch::Epoch,
    groups::Groups,
    maps::{ByCpu, Words},
    memory::PlannedMap,
    ring::Ring,
    sample::Sample,
};

impl Kernel {
    /// A map with one entry for each CPU.
    ///
    /// # Errors
    /// If the object has no such map, or it cannot be mapped.
    pub fn by_cpu<T: FromBytes + Immutable + KnownLayout>(&self, map: &PlannedMap) -> Result<ByCpu<T>, KernelError> {
        Ok(ByCpu::of(self.mapped(map.name, ByCpu::<T>::words(self.host.cpus))?))
    }

    /// A map of words, as many as were planned.
    ///
    /// # Errors
    /// As for [`Self::by_cpu`].
    pub fn words(&self, map: &PlannedMap) -> Result<Words, KernelError> {
        let size = self.memory.iter().find(|size| size.name == map.name).ok_or(KernelError::NoMap(map.name))?;
        self.mapped(map.name, size.bytes() / size_of::<u64>())
    }

    /// A map in memory, once for all signals that read it.
    pub(super) fn mapped(&self, map: &'static str, count: usize) -> Result<Words, KernelError> {
        if let Some(words) = self.mapped.borrow().get(map).filter(|words| words.count() == count) {
            return Ok(words.clone());
        }
        let descriptor = self.maps.get(map).ok_or(KernelError::NoMap(map))?;
        let words = Words::map(map, descriptor, count)?;
        self.mapped.borrow_mut().insert(map, words.clone());
        Ok(words)
    }

    /// The epoch of the owners that programs have cached, by socket in `sockets`.
    ///
    /// # Errors
    /// If the map cannot be mapped.
    pub fn epoch(&self, sockets: &PlannedMap) -> Result<Epoch, KernelError> {
        Ok(Epoch::new(self.client.clone(), self.words(sockets)?))
    }

    /// The share of packets that are measured.
    #[must_use]
    pub fn sample(&self) -> Sample {
        Sample::new(self.client.clone())
    }

    /// The packets that are measured.
    #[must_use]
    pub fn choices(&self) -> Choices {
        Choices::new(self.client.clone())
    }

    /// The groups of packets.
    #[must_use]
    pub fn groups(&self) -> Groups {
        Groups::new(self.client.clone())
    }

    /// Takes a ring. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the object has no such ring, or it cannot be watched.
    pub fn ring(&mut self, map: &'static str) -> Result<Ring, KernelError> {
        let taken = self.rings.remove(map).ok_or(KernelError::NoMap(map))?;
        Ring::open(taken).map_err(|source| KernelError::Ring { map, source })
    }

    /// Follows the wall clock for the programs. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the kernel refuses a timer.
    pub fn wall_clock(&self) -> Result<WallClock, KernelError> {
        WallClock::follow(self.client.clone()).map_err(KernelError::Clock)
    }
}
