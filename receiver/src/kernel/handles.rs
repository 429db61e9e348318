//! What user space takes in hand of the loaded object: maps, rings, and variables that programs read.

use aya::maps::{Array, HashMap, Map, MapData, MapError as AyaMapError};
use undercurrent_ebpf::abi::served;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    Kernel, KernelError,
    choices::{CHOICES, Choices},
    clock::WallClock,
    epoch::Epoch,
    groups::{self, Groups},
    hooks,
    maps::{ByCpu, Words},
    ring::Ring,
    sample::Sample,
};

impl Kernel {
    /// A map with one entry for each CPU.
    ///
    /// # Errors
    /// Where the object has no such map or it cannot be mapped.
    pub fn by_cpu<T: FromBytes + Immutable + KnownLayout>(&self, map: &'static str) -> Result<ByCpu<T>, KernelError> {
        Ok(ByCpu::of(self.mapped(map, ByCpu::<T>::words(self.host.cpus))?))
    }

    /// A map of words, as many as were planned.
    ///
    /// # Errors
    /// As for [`Self::by_cpu`].
    pub fn words(&self, map: &'static str) -> Result<Words, KernelError> {
        let bytes = self.memory.iter().find(|(name, _)| *name == map).map_or(0, |(_, bytes)| *bytes);
        self.mapped(map, bytes / size_of::<u64>())
    }

    /// A map in memory, once however many signals read it.
    pub(super) fn mapped(&self, map: &'static str, count: usize) -> Result<Words, KernelError> {
        if let Some(words) = self.mapped.borrow().get(map).filter(|words| words.count() == count) {
            return Ok(words.clone());
        }
        let words = Words::map(map, self.array(map)?.fd(), count)?;
        self.mapped.borrow_mut().insert(map, words.clone());
        Ok(words)
    }

    /// The epoch of what programs have cached of owners.
    ///
    /// # Errors
    /// Where the maps cannot be had.
    pub fn epoch(&mut self) -> Result<Epoch, KernelError> {
        let cache = self.words("SOCKETS")?;
        Ok(Epoch::new(self.variable(".data.owner")?, cache))
    }

    /// Which packets are measured.
    ///
    /// # Errors
    /// Where the map cannot be had.
    pub fn sample(&mut self) -> Result<Sample, KernelError> {
        Ok(Sample::new(self.variable(".data.sample")?))
    }

    /// What chooses packets.
    ///
    /// # Errors
    /// Where the map cannot be had.
    pub fn choices(&mut self) -> Result<Choices, KernelError> {
        let map = self.ebpf.take_map(CHOICES).ok_or_else(|| missing(CHOICES))?;
        let map =
            HashMap::try_from(map).map_err(|source| KernelError::Map { map: CHOICES, source: Box::new(source) })?;
        Ok(Choices::new(map))
    }

    /// What programs tell packets apart by.
    ///
    /// # Errors
    /// Where the maps cannot be had.
    pub fn groups(&mut self) -> Result<Groups, KernelError> {
        let mut take = |map| self.ebpf.take_map(map).ok_or_else(|| missing(map));
        let (numbers, free, names) = (take(groups::GROUPS)?, take(groups::FREE)?, take(groups::INTERFACES)?);
        Groups::new(numbers, free, names)
            .map_err(|source| KernelError::Map { map: groups::GROUPS, source: Box::new(source) })
    }

    /// Takes charge of a ring. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where the object has no such ring, or it cannot be watched.
    pub fn ring(&mut self, map: &'static str) -> Result<Ring, KernelError> {
        let taken = self.ebpf.take_map(map).ok_or_else(|| missing(map))?;
        Ring::open(taken).map_err(|source| KernelError::Ring { map, source })
    }

    fn array(&self, map: &'static str) -> Result<&MapData, KernelError> {
        match self.ebpf.map(map) {
            Some(Map::Array(data)) => Ok(data),
            _ => Err(missing(map)),
        }
    }

    /// The programs' clock, to be followed. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where the map or a timer cannot be had.
    pub fn wall_clock(&mut self) -> Result<WallClock, KernelError> {
        WallClock::follow(self.variable(".data.clock")?).map_err(KernelError::Clock)
    }

    /// Takes charge of a variable that programs read, alone in its section.
    fn variable(&mut self, section: &'static str) -> Result<Array<MapData, u64>, KernelError> {
        let map = self.ebpf.take_map(section).ok_or_else(|| missing(section))?;
        Array::try_from(map).map_err(|source| KernelError::Map { map: section, source: Box::new(source) })
    }

    /// Tells programs which hooks leave something for others.
    pub(super) fn tell_served(&mut self) -> Result<(), KernelError> {
        const SECTION: &str = ".data.served";
        let bits = [(&hooks::SOCKET_ENQUEUED, served::ENQUEUED), (&hooks::TRANSMIT_SEND, served::SENT)];
        let bits: u64 = bits.into_iter().filter(|(hook, _)| self.serves(hook)).map(|(_, bit)| bit).sum();
        let map = self.ebpf.map_mut(SECTION).ok_or_else(|| missing(SECTION))?;
        let refused = |source| KernelError::Map { map: SECTION, source: Box::new(source) };
        Array::<_, u64>::try_from(map).and_then(|mut word| word.set(0, bits, 0)).map_err(refused)
    }
}

pub(super) fn missing(map: &'static str) -> KernelError {
    KernelError::Map { map, source: Box::new(AyaMapError::InvalidName { name: map.to_owned() }) }
}
