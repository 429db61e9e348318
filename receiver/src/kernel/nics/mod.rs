//! NICs that stamp received packets in hardware, and how their clocks relate to the wall clock.

mod estimate;
mod indices;
mod interface;
mod reading;
mod serve;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use undercurrent_ebpf::abi::driver::{Conversion, NICS, NicClock};

use self::estimate::Estimate;
pub use self::{indices::NicIndices, interface::Interface, reading::Clock};
use super::{client::Client, maps::Words};

/// The map that says which NICs have places.
pub const PLACES: &str = "NIC_INDICES";
/// The map that says how their clocks relate to the wall clock.
pub const CLOCKS: &str = "NIC_CLOCKS";

/// How often clocks are read.
const PERIOD: Duration = Duration::from_secs(1);
/// After how many of these periods it is looked for NICs.
const SEARCH: u32 = 60;

/// What was found of NICs that stamp packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicInventory {
    /// Interfaces whose NICs' clocks can be read.
    pub usable: Vec<Interface>,
    /// Why others cannot be used.
    pub problems: Vec<String>,
}

impl NicInventory {
    /// Looks at the interfaces of this process's network namespace.
    #[must_use]
    pub fn now() -> Self {
        match interface::stamping() {
            Ok(interfaces) => Self::among(interfaces, |number| Clock::open(number).map(drop)),
            Err(error) => Self { problems: vec![format!("interfaces cannot be listed: {error}")], ..Self::default() },
        }
    }

    fn among(interfaces: Vec<Interface>, open: impl Fn(u32) -> io::Result<()>) -> Self {
        let mut found = Self::default();
        for interface in interfaces {
            match problem(&interface, &open) {
                Some(problem) => found.problems.push(problem),
                None if found.usable.len() == NICS => {
                    let name = &interface.name;
                    found.problems.push(format!("{name} is left out: {NICS} NICs are measured at most"));
                }
                None => found.usable.push(interface),
            }
        }
        found
    }
}

/// Why an interface's NIC stamps packets in vain.
fn problem(interface: &Interface, open: impl Fn(u32) -> io::Result<()>) -> Option<String> {
    let Interface { name, clock, .. } = interface;
    let Some(number) = *clock else {
        return Some(format!("the NIC of {name} stamps packets, and its driver shows no clock to compare them with"));
    };
    let error = open(number).err()?;
    let path = Clock::path(number);
    Some(format!(
        "{}, the clock of the NIC of {name}, cannot be opened: {error}; run as root, and in a container give it the \
         device (docker run --device {0}; in Kubernetes a privileged container with the host's /dev)",
        path.display()
    ))
}

/// What is said of a NIC.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// Its interface's name.
    pub name: String,
    /// How far its clock, brought to the wall clock, may be off, in seconds; absent while that is not known.
    pub error: Option<f64>,
}

/// The NICs that have had places, by these.
pub type Nics = Arc<Mutex<Vec<Nic>>>;

/// A NIC that is followed.
struct Followed {
    interface: Interface,
    /// None where the NIC no longer stamps, or is gone.
    clock: Option<Clock>,
    estimate: Estimate,
}

/// Follows the clocks of NICs, and tells programs.
pub struct Following {
    namespace: u32,
    client: Client,
    places: NicIndices,
    clocks: Clocks,
    followed: Vec<Followed>,
    nics: Nics,
    due: Instant,
    periods: u32,
}

impl Following {
    /// Takes charge of the maps. Nothing is followed yet.
    ///
    /// # Errors
    /// Where this process's namespace cannot be told.
    pub(super) fn new(client: Client, places: NicIndices, clocks: Clocks, nics: Nics) -> io::Result<Self> {
        Ok(Self {
            namespace: interface::namespace()?,
            client,
            places,
            clocks,
            followed: Vec::new(),
            nics,
            due: Instant::now(),
            periods: 0,
        })
    }

    /// Waits until clocks are to be read, and reads them. Whether it is to be looked for NICs. Cancel safe.
    pub async fn read(&mut self) -> bool {
        tokio::time::sleep_until(self.due).await;
        self.due = Instant::now() + PERIOD;
        self.synchronize();
        self.periods = (self.periods + 1) % SEARCH;
        self.periods == 0
    }

    /// Follows these, and no others. A NIC that comes again has its place again.
    pub fn follow(&mut self, found: &NicInventory) {
        for (place, followed) in self.followed.iter_mut().enumerate() {
            if followed.clock.is_some() && !found.usable.contains(&followed.interface) {
                tracing::info!("the NIC of {} no longer stamps packets", followed.interface.name);
                followed.stop();
                self.clocks.unset(place);
                self.places.remove(followed.interface.within(self.namespace));
            }
        }
        let news: Vec<_> = found.usable.iter().filter(|interface| !self.follows(interface)).cloned().collect();
        news.into_iter().for_each(|interface| self.begin(interface));
        self.tell();
    }

    fn follows(&self, interface: &Interface) -> bool {
        self.followed.iter().any(|followed| followed.clock.is_some() && followed.interface == *interface)
    }

    fn begin(&mut self, interface: Interface) {
        let name = interface.name.clone();
        let place = self.followed.iter().position(|followed| followed.interface == interface);
        let place = place.unwrap_or(self.followed.len());
        if place == NICS {
            return tracing::warn!("{name} is left out: {NICS} NICs have been measured, and each keeps its place");
        }
        let open = |number| self.client.open_clock(number).ok().map(Clock::from);
        let Some(clock) = interface.clock.and_then(open) else { return };
        if let Err(error) = self.places.insert(interface.within(self.namespace), place) {
            return tracing::warn!("the hardware stamps of {name} are not measured: {error}");
        }
        tracing::info!("the NIC of {name} stamps packets by {}", Clock::path(interface.clock.unwrap_or(0)).display());
        let followed = Followed { interface, clock: Some(clock), estimate: Estimate::default() };
        if place == self.followed.len() {
            self.followed.push(followed);
        } else {
            self.followed[place] = followed;
        }
    }

    /// Forgets how clocks relate to the wall clock, which was set, and reads them anew.
    pub fn stepped(&mut self) {
        for (place, followed) in self.followed.iter_mut().enumerate() {
            followed.estimate.forget();
            self.clocks.unset(place);
        }
        self.due = Instant::now();
    }

    fn synchronize(&mut self) {
        for (place, followed) in self.followed.iter_mut().enumerate() {
            match followed.read() {
                Some(conversion) => self.clocks.set(place, &conversion),
                None => self.clocks.unset(place),
            }
        }
        self.tell();
    }

    fn tell(&self) {
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

    /// Reads the clock; how the wall clock follows from it, where that is known.
    fn read(&mut self) -> Option<Conversion> {
        match self.clock.as_ref()?.read() {
            Ok(reading) => self.estimate.add(reading),
            Err(error) => {
                tracing::warn!("the clock of the NIC of {} cannot be read: {error}", self.interface.name);
                self.stop();
            }
        }
        self.estimate.conversion()
    }
}

/// What programs know of clocks.
pub struct Clocks(Words);

const CURRENT: usize = 0;
const CONVERSION: usize = size_of::<Conversion>() / size_of::<u64>();
const CLOCK: usize = size_of::<NicClock>() / size_of::<u64>();

impl Clocks {
    /// Takes charge of the map.
    pub(super) const fn new(words: Words) -> Self {
        Self(words)
    }

    /// Words of the map.
    pub(super) const WORDS: usize = NICS * CLOCK;

    /// Sets how the wall clock follows from a NIC's. Programs see all of it or nothing.
    pub fn set(&self, place: usize, conversion: &Conversion) {
        let words = self.clock(place);
        let next = usize::from(words[CURRENT].load(Ordering::Relaxed) == 1);
        let at = CURRENT + 1 + next * CONVERSION;
        let values = [conversion.reading, conversion.offset, conversion.rate];
        words[at..at + CONVERSION].iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        words[CURRENT].store(next as u64 + 1, Ordering::Release);
    }

    /// Nothing is known any more.
    pub fn unset(&self, place: usize) {
        self.clock(place)[CURRENT].store(0, Ordering::Relaxed);
    }

    fn clock(&self, place: usize) -> &[AtomicU64] {
        self.0.slice(place * CLOCK..(place + 1) * CLOCK)
    }
}

#[cfg(test)]
mod tests;
