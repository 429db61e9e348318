//! NICs that timestamp received packets in hardware, and the relation of their clocks to the wall clock.

mod estimate;
mod indices;
mod serve;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use undercurrent_ebpf::abi::driver::{Conversion, NICS, NicClock};

use self::estimate::Estimate;
pub use self::indices::NicIndices;
use super::{client::Client, maps::Words, nic_inventory};
pub use crate::nic_inventory::{Clock, Interface, NicInventory};

/// The map of conversions from NIC clocks to the wall clock.
pub const CLOCKS: &str = "NIC_CLOCKS";

/// The period of clock readings.
const PERIOD: Duration = Duration::from_secs(1);
/// The number of periods between searches for NICs.
const SEARCH: u32 = 60;

/// The reported state of a NIC.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// The name of the interface.
    pub name: String,
    /// The maximum error of the clock's conversion to the wall clock, in seconds; `None` while it is unknown.
    pub error: Option<f64>,
}

/// The followed NICs, by index. A NIC keeps its index.
pub type Nics = Arc<Mutex<Vec<Nic>>>;

/// A NIC that is followed.
struct Followed {
    interface: Interface,
    /// `None` if the NIC no longer timestamps packets or was removed.
    clock: Option<Clock>,
    estimate: Estimate,
}

/// Reads the clocks of NICs and writes the conversions for programs.
pub struct Following {
    namespace: u32,
    client: Client,
    indices: NicIndices,
    clocks: Clocks,
    followed: Vec<Followed>,
    nics: Nics,
    due: Instant,
    periods: u32,
}

impl Following {
    /// Creates the follower without NICs.
    ///
    /// # Errors
    /// If the inode of this process's network namespace cannot be read.
    pub(super) fn new(client: Client, indices: NicIndices, clocks: Clocks, nics: Nics) -> io::Result<Self> {
        Ok(Self {
            namespace: nic_inventory::namespace()?,
            client,
            indices,
            clocks,
            followed: Vec::new(),
            nics,
            due: Instant::now(),
            periods: 0,
        })
    }

    /// Waits for the next period and reads the clocks. Returns true when NICs must be searched. Cancel safe.
    pub async fn read(&mut self) -> bool {
        tokio::time::sleep_until(self.due).await;
        self.due = Instant::now() + PERIOD;
        self.synchronize();
        self.periods = (self.periods + 1) % SEARCH;
        self.periods == 0
    }

    /// Follows exactly the NICs in `found`. A NIC that returns gets its former index.
    pub fn follow(&mut self, found: &NicInventory) {
        for (index, followed) in self.followed.iter_mut().enumerate() {
            if followed.clock.is_some() && !found.usable.contains(&followed.interface) {
                tracing::info!("the NIC of {} no longer timestamps packets", followed.interface.name);
                followed.stop();
                self.clocks.unset(index);
                self.indices.remove(followed.interface.within(self.namespace));
            }
        }
        let news: Vec<_> = found.usable.iter().filter(|interface| !self.follows(interface)).cloned().collect();
        news.into_iter().for_each(|interface| self.start(interface));
        self.publish();
    }

    fn follows(&self, interface: &Interface) -> bool {
        self.followed.iter().any(|followed| followed.clock.is_some() && followed.interface == *interface)
    }

    fn start(&mut self, interface: Interface) {
        let name = interface.name.clone();
        let index = self.followed.iter().position(|followed| followed.interface == interface);
        let index = index.unwrap_or(self.followed.len());
        if index == NICS {
            return tracing::warn!("{name} is not measured: {NICS} other NICs have been measured since the start");
        }
        let open = |number| self.client.open_clock(number).ok().map(Clock::from);
        let Some(clock) = interface.clock.and_then(open) else { return };
        if let Err(error) = self.indices.insert(interface.within(self.namespace), index) {
            return tracing::warn!("cannot measure the hardware timestamps of {name}: {error}");
        }
        let path = Clock::path(interface.clock.unwrap_or(0));
        tracing::info!("the NIC of {name} timestamps packets with {}", path.display());
        let followed = Followed { interface, clock: Some(clock), estimate: Estimate::default() };
        if index == self.followed.len() {
            self.followed.push(followed);
        } else {
            self.followed[index] = followed;
        }
    }

    /// Resets the estimates after the wall clock was set, and schedules new readings.
    pub fn stepped(&mut self) {
        for (index, followed) in self.followed.iter_mut().enumerate() {
            followed.estimate.forget();
            self.clocks.unset(index);
        }
        self.due = Instant::now();
    }

    fn synchronize(&mut self) {
        for (index, followed) in self.followed.iter_mut().enumerate() {
            match followed.read() {
                Some(conversion) => self.clocks.set(index, &conversion),
                None => self.clocks.unset(index),
            }
        }
        self.publish();
    }

    fn publish(&self) {
        let nic = |followed: &Followed| Nic {
            name: followed.interface.name.clone(),
            error: followed.clock.as_ref().and_then(|_| followed.estimate.error()),
        };
        *self.nics.lock().unwrap_or_else(PoisonError::into_inner) = self.followed.iter().map(nic).collect();
    }
}

impl Followed {
    fn stop(&mut self) {
        self.clock = None;
        self.estimate.forget();
    }

    /// Reads the clock and returns the conversion to the wall clock, if it is known.
    fn read(&mut self) -> Option<Conversion> {
        match self.clock.as_ref()?.read() {
            Ok(reading) => self.estimate.add(reading),
            Err(error) => {
                tracing::warn!("cannot read the clock of the NIC of {}: {error}", self.interface.name);
                self.stop();
            }
        }
        self.estimate.conversion()
    }
}

/// The map of conversions from NIC clocks to the wall clock.
pub struct Clocks(Words);

const CURRENT: usize = 0;
const CONVERSION: usize = size_of::<Conversion>() / size_of::<u64>();
const CLOCK: usize = size_of::<NicClock>() / size_of::<u64>();

impl Clocks {
    /// Creates a writer of the map.
    pub(super) const fn new(words: Words) -> Self {
        Self(words)
    }

    /// The number of words in the map.
    pub(super) const WORDS: usize = NICS * CLOCK;

    /// Sets the conversion of a NIC's clock. Programs read either the complete conversion or none.
    pub fn set(&self, index: usize, conversion: &Conversion) {
        let words = self.clock(index);
        let next = usize::from(words[CURRENT].load(Ordering::Relaxed) == 1);
        let at = CURRENT + 1 + next * CONVERSION;
        let values = [conversion.reading, conversion.offset, conversion.rate];
        words[at..at + CONVERSION].iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        words[CURRENT].store(next as u64 + 1, Ordering::Release);
    }

    /// Invalidates the conversion of a NIC's clock.
    pub fn unset(&self, index: usize) {
        self.clock(index)[CURRENT].store(0, Ordering::Relaxed);
    }

    fn clock(&self, index: usize) -> &[AtomicU64] {
        self.0.slice(index * CLOCK..(index + 1) * CLOCK)
    }
}
