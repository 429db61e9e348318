//! Rings that programs tell of rare events through.

use std::io;

use std::os::fd::OwnedFd;

use aya::maps::{Map, MapData, RingBuf};
use tokio::io::{Interest, unix::AsyncFd};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Maps a ring into memory. Reading its size takes a `bpf` system call, which the worker may not make later.
///
/// # Errors
/// If the descriptor is not a ring's, or cannot be mapped.
pub fn map(descriptor: OwnedFd) -> io::Result<RingBuf<MapData>> {
    let data = MapData::from_fd(descriptor).map_err(io::Error::other)?;
    RingBuf::try_from(Map::RingBuf(data)).map_err(io::Error::other)
}

/// A ring's reading end.
pub struct Ring {
    ring: AsyncFd<RingBuf<MapData>>,
}

impl Ring {
    /// Watches a ring. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch it.
    pub fn open(ring: RingBuf<MapData>) -> io::Result<Self> {
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
