//! Ring buffers for rare events.

use std::io;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

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

/// A queue of records with a descriptor that is readable while there are any.
pub trait Records: AsFd + AsRawFd {
    /// Removes the next record after passing it to `read`; `None` if the queue is empty.
    fn next_record<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R>;
}

impl Records for RingBuf<MapData> {
    fn next_record<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.next().map(|record| read(&record))
    }
}

/// The consumer of a ring buffer.
pub struct Ring<Q: Records = RingBuf<MapData>> {
    ring: AsyncFd<Q>,
    /// False if the last reading left records. The descriptor then does not become readable again.
    is_drained: bool,
}

impl<Q: Records> Ring<Q> {
    /// Registers a ring buffer with the tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot poll the descriptor.
    pub fn open(ring: Q) -> io::Result<Self> {
        // SAFETY: the ring owns its descriptor, which stays open as long as the `AsyncFd` owns the ring.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
        Ok(Self { ring, is_drained: true })
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

    /// Waits for an event. If the last reading left records, only yields to the runtime: the timers of a task that is never pending
    /// do not advance. Cancel safe.
    ///
    /// # Errors
    /// If the runtime stops polling the descriptor.
    pub async fn filled(&mut self) -> io::Result<()> {
        if self.is_drained {
            self.ring.readable_mut().await?.clear_ready();
        } else {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Passes the next record to `read` and removes it; `None` if the buffer is empty.
    pub fn next<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let result = self.ring.get_mut().next_record(read);
        self.is_drained = result.is_none();
        result
    }

    /// Removes and returns the next event that has the size of a `T`; `None` if there is none.
    pub fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Option<T> {
        loop {
            if let Some(event) = self.next(|record| T::read_from_bytes(record).ok())? {
                return Some(event);
            }
        }
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

#[cfg(test)]
mod tests {
    use std::{
        os::{
            fd::{BorrowedFd, RawFd},
            unix::net::UnixDatagram,
        },
        time::Duration,
    };

    use super::*;

    /// A queue of datagrams.
    struct Queue(UnixDatagram);

    impl AsFd for Queue {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl AsRawFd for Queue {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }

    impl Records for Queue {
        fn next_record<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
            let mut record = [0; 8];
            let length = self.0.recv(&mut record).ok()?;
            Some(read(&record[..length]))
        }
    }

    #[tokio::test]
    async fn records_that_a_reading_left_are_announced() {
        let (sender, receiver) = UnixDatagram::pair().expect("sockets");
        receiver.set_nonblocking(true).expect("a flag");
        let mut ring = Ring::open(Queue(receiver)).expect("a watched socket");
        for number in 0..9_u32 {
            sender.send(&number.to_ne_bytes()).expect("sent");
        }
        let mut taken = Vec::new();
        while taken.len() < 9 {
            let filled = tokio::time::timeout(Duration::from_secs(20), ring.filled()).await;
            filled.expect("the rest is announced").expect("watched");
            taken.extend((0..4).map_while(|_| ring.take::<u32>()));
        }
        assert_eq!(taken, (0..9).collect::<Vec<_>>());
        assert_eq!(ring.take::<u32>(), None);
        let more = tokio::time::timeout(Duration::from_millis(20), ring.filled()).await;
        assert!(more.is_err(), "an empty queue is announced");
    }

    #[tokio::test]
    async fn timers_advance_while_records_remain() {
        let (sender, receiver) = UnixDatagram::pair().expect("sockets");
        receiver.set_nonblocking(true).expect("a flag");
        let mut ring = Ring::open(Queue(receiver)).expect("a watched socket");
        for number in [1_u32, 2] {
            sender.send(&number.to_ne_bytes()).expect("sent");
        }
        assert_eq!(ring.take::<u32>(), Some(1));
        let (began, mut tick) =
            (std::time::Instant::now(), std::pin::pin!(tokio::time::sleep(Duration::from_millis(1))));
        loop {
            tokio::select! {
                biased;
                () = &mut tick => break,
                filled = ring.filled() => filled.expect("watched"),
            }
            assert!(began.elapsed() < Duration::from_secs(20), "the timer does not advance");
        }
    }

    #[tokio::test]
    async fn a_record_of_another_size_hides_no_later_one() {
        let (sender, receiver) = UnixDatagram::pair().expect("sockets");
        receiver.set_nonblocking(true).expect("a flag");
        let mut ring = Ring::open(Queue(receiver)).expect("a watched socket");
        sender.send(&[1, 2, 3]).expect("sent");
        sender.send(&7_u32.to_ne_bytes()).expect("sent");
        assert_eq!(ring.take::<u32>(), Some(7));
    }
}
