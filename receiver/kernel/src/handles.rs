//! Access to the maps, ring buffers and variables of the loaded object.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    Kernel, KernelError,
    clock::WallClock,
    cpu_sampling::CpuSampling,
    epoch::Epoch,
    filter_map::FilterMap,
    groups::Groups,
    maps::{ByCpu, Words},
    memory::PlannedMap,
    ring::Ring,
    sample::Sample,
    slow::SlowThreshold,
};

impl Kernel {
    /// Returns a map with one entry for each CPU.
    ///
    /// # Errors
    /// If the object lacks the map, or the map cannot be mapped into memory.
    pub fn by_cpu<T: FromBytes + Immutable + KnownLayout>(&self, map: &PlannedMap) -> Result<ByCpu<T>, KernelError> {
        Ok(ByCpu::from_words(self.mapped(map.name, ByCpu::<T>::words(self.host.cpus))?))
    }

    /// Returns a map of words with its planned size.
    ///
    /// # Errors
    /// If the object lacks the map, or the map cannot be mapped into memory.
    pub fn words(&self, map: &PlannedMap) -> Result<Words, KernelError> {
        let size = self.memory.iter().find(|size| size.name == map.name).ok_or(KernelError::NoMap(map.name))?;
        self.mapped(map.name, size.bytes() / size_of::<u64>())
    }

    /// Maps a map into memory; all signals share the mapping.
    pub(super) fn mapped(&self, map: &'static str, count: usize) -> Result<Words, KernelError> {
        if let Some(words) = self.mapped.borrow().get(map).filter(|words| words.count() == count) {
            return Ok(words.clone());
        }
        let descriptor = self.maps.get(map).ok_or(KernelError::NoMap(map))?;
        let words = Words::map(map, descriptor, count)?;
        self.mapped.borrow_mut().insert(map, words.clone());
        Ok(words)
    }

    /// Returns the epoch of cached attributions; `sockets` is the cache by socket.
    ///
    /// # Errors
    /// If the map cannot be mapped.
    pub fn epoch(&self, sockets: &PlannedMap) -> Result<Epoch, KernelError> {
        Ok(Epoch::new(self.client.clone(), self.words(sockets)?))
    }

    /// Returns the sampling of packets.
    #[must_use]
    pub fn sample(&self) -> Sample {
        Sample::new(self.client.clone())
    }

    /// Returns the filter of packets.
    #[must_use]
    pub fn filter_map(&self) -> FilterMap {
        FilterMap::new(self.client.clone())
    }

    /// Returns the groups of packets.
    #[must_use]
    pub fn groups(&self) -> Groups {
        Groups::new(self.client.clone())
    }

    /// Takes a ring buffer. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the object lacks the ring buffer, or the runtime cannot poll it.
    pub fn ring(&self, map: &'static str) -> Result<Ring, KernelError> {
        let taken = self.rings.borrow_mut().remove(map).ok_or(KernelError::NoMap(map))?;
        Ring::open(taken).map_err(|source| KernelError::Ring { map, source })
    }

    /// Returns the sampling of CPUs.
    #[must_use]
    pub fn cpu_sampling(&self) -> CpuSampling {
        CpuSampling::new(self.client.clone())
    }

    /// Returns the control of the threshold of slow packets.
    #[must_use]
    pub fn slow_threshold(&self) -> SlowThreshold {
        SlowThreshold::new(self.client.clone())
    }

    /// Follows the wall clock for the programs. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the kernel refuses a timer.
    pub fn wall_clock(&self) -> Result<WallClock, KernelError> {
        WallClock::follow(self.client.clone()).map_err(KernelError::Clock)
    }
}
