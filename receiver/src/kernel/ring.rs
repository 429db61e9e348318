//! Rings that programs tell of rare events through.

use std::io;

use aya::maps::{Map, MapData, RingBuf};
use tokio::io::{Interest, unix::AsyncFd};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A ring's reading end.
pub struct Ring {
    ring: AsyncFd<RingBuf<MapData>>,
}

impl Ring {
    /// Takes charge of a ring. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where the map is no ring, or the runtime cannot watch it.
    pub fn open(map: Map) -> io::Result<Self> {
        let ring = RingBuf::try_from(map).map_err(io::Error::other)?;
        // SAFETY: the ring's descriptor is its own and stays open for as long as it lives.
        Ok(Self { ring: unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }? })
    }

    /// Waits until something is in the ring. Cancel safe.
    ///
    /// # Errors
    /// The runtime's loss of the ring.
    pub async fn filled(&mut self) -> io::Result<()> {
        self.ring.readable_mut().await?.clear_ready();
        Ok(())
    }

    /// Takes the next event; `None` where there is none, or where one has not the bytes of a `T`.
    pub fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Option<T> {
        let item = self.ring.get_mut().next()?;
        T::read_from_bytes(&item).ok()
    }
}
