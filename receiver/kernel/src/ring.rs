//! Ring buffers for rare events.

use std::io;

use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{Map, MapData, RingBuf};
use tokio::io::{Interest, unix::AsyncFd};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Maps a ring buffer into memory. Reading its size takes a `bpf` system call, which seccomp later denies the worker.
///
/// # Errors
/// If the descriptor is not that of a ring buffer, or cannot be mapped.
pub fn map(descriptor: OwnedFd) -> io::Result<RingBuf<MapData>> {
    let data = MapData::from_fd(descriptor).map_err(io::Error::other)?;
    RingBuf::try_from(Map::RingBuf(data)).map_err(io::Error::other)
}

/// The consumer of a ring buffer.
pub struct Ring {
    ring: AsyncFd<RingBuf<MapData>>,
}

impl Ring {
    /// Registers a ring buffer with the tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot poll the descriptor.
    pub fn open(ring: RingBuf<MapData>) -> io::Result<Self> {
        // SAFETY: `RingBuf` owns its descriptor, so the descriptor stays open as long as the `AsyncFd` owns the ring.
        Ok(Self { ring: unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }? })
    }

    /// Returns a handle that waits for events without access to them.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated, or the runtime cannot poll it.
    pub fn watch(&self) -> io::Result<Watch> {
        let descriptor = self.ring.get_ref().as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` owns its descriptor, which stays open as long as the `AsyncFd` owns it.
        Ok(Watch(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?))
    }

    /// Waits for an event. Cancel safe.
    ///
    /// # Errors
    /// If the runtime stops polling the descriptor.
    pub async fn filled(&mut self) -> io::Result<()> {
        self.ring.readable_mut().await?.clear_ready();
        Ok(())
    }

    /// Passes the next record to `read` and removes it; `None` if the buffer is empty.
    pub fn next<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.ring.get_mut().next().map(|record| read(&record))
    }

    /// Removes and returns the next event; `None` if the buffer is empty or the event does not have the size of a `T`.
    pub fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Option<T> {
        let item = self.ring.get_mut().next()?;
        T::read_from_bytes(&item).ok()
    }
}

/// Waits for events of a ring buffer.
pub struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    /// Waits until a program wakes the reader. Cancel safe.
    ///
    /// # Errors
    /// If the runtime stops polling the descriptor.
    pub async fn filled(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}
