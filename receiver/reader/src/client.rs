//! The worker's connection to the reader.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::message::{Answer, FileRequest, ForeignRequest, OpenOrConnect};
use crate::channel::{Call, Channel, ChannelError, Incoming, LONGEST_REQUEST, Reply};

/// The minimum time between the replacement of a reader that failed and the next replacement.
const REST: Duration = Duration::from_secs(10);
/// The time after which a pending request counts as hung, and a reader without a free thread is replaced.
const HUNG: Duration = Duration::from_secs(1);
/// The time between two attempts of a request while the reader has no free thread.
const RETRY: Duration = Duration::from_millis(100);

/// Starts a reader that replaces the last one. Returns its process id, and the descriptors of its channels for files of the kernel
/// and for foreign requests.
pub type StartReader = Box<dyn Fn() -> io::Result<(u32, Vec<OwnedFd>)>>;

/// A connection to the reader. Clones share it.
#[derive(Clone)]
pub struct Reader(Rc<State>);

struct State {
    start: StartReader,
    process: Cell<u32>,
    files: RefCell<Option<Channel>>,
    foreign: Foreign,
    replaced: Cell<u64>,
    earliest: Cell<Option<Instant>>,
}

impl Reader {
    /// Starts a reader. [`Self::maintain`] needs a tokio runtime.
    ///
    /// # Errors
    /// If the reader cannot be started.
    pub fn start(start: StartReader) -> io::Result<Self> {
        let (process, files, foreign) = connect(&start)?;
        let foreign = Foreign::connect(foreign)?;
        let state = State {
            start,
            process: Cell::new(process),
            files: RefCell::new(Some(files)),
            foreign,
            replaced: Cell::new(0),
            earliest: Cell::new(None),
        };
        Ok(Self(Rc::new(state)))
    }

    /// Returns the client of requests that may block on other users' processes.
    #[must_use]
    pub fn foreign(&self) -> Foreign {
        self.0.foreign.clone()
    }

    /// Returns the process id of the reader.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.0.process.get()
    }

    /// Returns how often the reader was replaced.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.0.replaced.get()
    }

    /// Executes a request that reads files of the kernel.
    ///
    /// # Errors
    /// If the request fails, or if the reader fails. [`Self::maintain`] then replaces the reader.
    pub fn files<C>(&self, call: C) -> io::Result<C::Reply>
    where
        C: Call,
        FileRequest: From<C>,
    {
        let mut files = self.0.files.borrow_mut();
        let channel = files.as_mut().ok_or_else(|| io::Error::other("the reader does not respond"))?;
        match channel.call::<C, FileRequest>(call) {
            Ok((reply, _)) => reply.map_err(io::Error::other),
            Err(error) => {
                *files = None;
                Err(io::Error::other(format!("the reader failed: {error}")))
            }
        }
    }

    /// Sends requests about all elements, each with as many elements as the reader accepts. `length` returns the length of an
    /// element's path. Returns one element of the replies for each element.
    ///
    /// # Errors
    /// See [`Self::files`].
    pub fn files_in_parts<T, R, C>(
        &self,
        all: &[T],
        length: impl Fn(&T) -> usize,
        request: impl Fn(&[T]) -> C,
    ) -> io::Result<Vec<R>>
    where
        C: Call<Reply = Vec<R>>,
        FileRequest: From<C>,
    {
        let (mut replies, mut rest) = (Vec::with_capacity(all.len()), all);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(fitting(rest, &length));
            replies.extend(complete(self.files(request(part))?, part.len())?);
            rest = after;
        }
        Ok(replies)
    }

    /// Replaces a reader that ended, that does not respond, or that other users' processes leave no free thread. Needs
    /// a tokio runtime.
    pub fn maintain(&self) {
        let state = &self.0;
        state.foreign.receive();
        let has_failed = state.files.borrow().is_none() || state.foreign.has_ended();
        let is_healthy = !has_failed && !state.foreign.is_exhausted();
        if is_healthy || state.earliest.get().is_some_and(|earliest| Instant::now() < earliest) {
            return;
        }
        state.earliest.set(Some(Instant::now() + REST));
        match connect(&state.start).and_then(|(process, files, foreign)| Ok((process, files, Open::new(foreign)?))) {
            Ok((process, files, foreign)) => {
                state.process.set(process);
                *state.files.borrow_mut() = Some(files);
                state.foreign.replace(foreign);
                state.replaced.set(state.replaced.get() + 1);
                // The callers of hung requests back off, so the next reader lasts longer.
                if !has_failed {
                    state.earliest.set(None);
                }
                tracing::warn!("the reader ended or did not respond; started another one");
            }
            Err(error) => tracing::error!(
                "cannot start another reader: {error}; container names and CPU times are missing until one starts"
            ),
        }
    }
}

/// Returns how many of the first elements fit one request; at least one.
fn fitting<T>(elements: &[T], length: impl Fn(&T) -> usize) -> usize {
    // An element has its path, and at most 16 bytes of numbers: the id or inode, and the length.
    let ends = elements.iter().scan(0, |end, element| {
        *end += length(element) + 16;
        Some(*end)
    });
    ends.take_while(|end| *end <= LONGEST_REQUEST / 2).count().max(1)
}

/// Returns the elements of a reply, which must have one for each element of the request.
fn complete<T>(elements: Vec<T>, count: usize) -> io::Result<Vec<T>> {
    if elements.len() == count {
        Ok(elements)
    } else {
        Err(io::Error::other(format!("the reader sent {} elements for {count}", elements.len())))
    }
}

/// Starts a reader. Returns its process id, the channel for files of the kernel and the channel for foreign requests.
fn connect(start: &StartReader) -> io::Result<(u32, Channel, Channel)> {
    let (process, channels) = start()?;
    let [files, foreign] =
        <[OwnedFd; 2]>::try_from(channels).map_err(|_| io::Error::other("the reader has no channels"))?;
    Ok((process, files.into(), foreign.into()))
}

/// A client of requests that may block on other users' processes. Clones share the connection, and several tasks may
/// use it.
#[derive(Clone)]
pub struct Foreign(Arc<Connection>);

struct Connection {
    open: Mutex<Open>,
    /// The time since which no thread of the reader has become free.
    exhausted: Mutex<Option<Instant>>,
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Answered>>>>;

/// An answer with its descriptors.
type Answered = (Answer, Vec<OwnedFd>);

struct Open {
    outgoing: Channel,
    /// `None` once a task receives the replies.
    incoming: Option<Channel>,
    waiting: Waiting,
    next: u64,
    ended: Arc<AtomicBool>,
}

impl Open {
    fn new(channel: Channel) -> io::Result<Self> {
        let incoming = Some(channel.try_clone()?);
        let (waiting, ended) = (Waiting::default(), Arc::default());
        Ok(Self { outgoing: channel, incoming, waiting, next: 0, ended })
    }
}

impl Foreign {
    /// Sends requests through a channel.
    ///
    /// # Errors
    /// If the limit of open descriptors is reached.
    pub fn connect(channel: Channel) -> io::Result<Self> {
        let connection = Connection { open: Mutex::new(Open::new(channel)?), exhausted: Mutex::default() };
        Ok(Self(Arc::new(connection)))
    }

    /// Sends a request and waits for its reply. While the reader has no free thread, sends the request again until its time
    /// limit. Needs a tokio runtime. Cancel safe: a late reply is dropped.
    ///
    /// # Errors
    /// If the request fails, or if the reader is busy or ended. [`io::ErrorKind::TimedOut`] if the reader executes the
    /// request and has not replied after the deadline, or before the replacement of a reader without a free thread.
    pub async fn call<C>(&self, call: C) -> io::Result<(C::Reply, Vec<OwnedFd>)>
    where
        C: Call,
        ForeignRequest: From<C>,
    {
        self.receive();
        let (request, until) = (call.into(), Instant::now() + C::LIMIT);
        loop {
            match self.attempt(&request, C::LIMIT).await? {
                (Answer::Busy, _) if Instant::now() + RETRY < until => tokio::time::sleep(RETRY).await,
                (Answer::Busy, _) => {
                    return Err(io::Error::other("other users' processes hold every thread of the reader"));
                }
                (Answer::Reply(body), descriptors) => {
                    let decoded = Reply::from_parts(body, descriptors).decode::<Result<C::Reply, String>>();
                    let (reply, descriptors) = decoded.map_err(io::Error::other)?;
                    return Ok((reply.map_err(io::Error::other)?, descriptors));
                }
            }
        }
    }

    /// Opens a file of the configuration for reading, or connects to a collector's socket.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub async fn open_or_connect(&self, path: PathBuf) -> io::Result<OwnedFd> {
        let ((), mut descriptors) = self.call(OpenOrConnect { path }).await?;
        descriptors.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    async fn attempt(&self, request: &ForeignRequest, deadline: Duration) -> io::Result<Answered> {
        let (start, (sender, receiver)) = (Instant::now(), oneshot::channel());
        let waiting = self.send(request, sender)?;
        let reply = tokio::time::timeout(deadline, receiver).await;
        drop(waiting);
        match reply {
            Ok(Ok(reply)) => {
                let mut exhausted = lock(&self.0.exhausted);
                *exhausted = matches!(reply.0, Answer::Busy).then(|| exhausted.unwrap_or_else(Instant::now));
                Ok(reply)
            }
            // Every request that holds a thread of an exhausted reader is older.
            Ok(Err(_)) if start.elapsed() < HUNG => Err(io::Error::other("the reader ended")),
            Ok(Err(_)) | Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn send(&self, request: &ForeignRequest, sender: oneshot::Sender<Answered>) -> io::Result<PendingRequest> {
        let mut open = self.open();
        open.next += 1;
        let number = open.next;
        let waiting = Arc::clone(&open.waiting);
        lock(&waiting).insert(number, sender);
        let pending = PendingRequest { waiting, number };
        match open.outgoing.send(&(number, request), &[]) {
            Ok(()) => Ok(pending),
            Err(error) => {
                open.ended.store(true, Ordering::Relaxed);
                Err(io::Error::other(error))
            }
        }
    }

    /// Starts the task that receives replies, unless it is running.
    fn receive(&self) {
        let mut open = self.open();
        let Some(incoming) = open.incoming.take() else { return };
        let (waiting, ended) = (Arc::clone(&open.waiting), Arc::clone(&open.ended));
        match Incoming::new(incoming) {
            Ok(incoming) => drop(tokio::spawn(receive(incoming, waiting, ended))),
            Err(error) => {
                tracing::warn!("cannot watch the reader: {error}");
                ended.store(true, Ordering::Relaxed);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.open().ended.load(Ordering::Relaxed)
    }

    fn is_exhausted(&self) -> bool {
        lock(&self.0.exhausted).is_some_and(|since| since.elapsed() >= HUNG)
    }

    fn replace(&self, open: Open) {
        *self.open() = open;
        *lock(&self.0.exhausted) = None;
        self.receive();
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        lock(&self.0.open)
    }
}

async fn receive(mut incoming: Incoming, waiting: Waiting, ended: Arc<AtomicBool>) {
    loop {
        match incoming.receive::<(u64, Answer)>().await {
            Ok(((number, reply), descriptors)) => {
                if let Some(sender) = lock(&waiting).remove(&number) {
                    // The caller has given up if the send fails.
                    drop(sender.send((reply, descriptors)));
                }
            }
            Err(error) => {
                if !matches!(error, ChannelError::Closed) {
                    tracing::warn!("the reader sent a malformed reply; replacing it: {error}");
                }
                ended.store(true, Ordering::Relaxed);
                return lock(&waiting).clear();
            }
        }
    }
}

/// A request that waits for its reply. Dropping the value removes it, for example when the caller gives up.
struct PendingRequest {
    waiting: Waiting,
    number: u64,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        lock(&self.waiting).remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_request_has_at_least_one_element_and_fits() {
        let size = |length: &usize| *length;
        assert_eq!(fitting(&[100; 10], size), 10);
        assert_eq!(fitting(&[4096; 1000], size), LONGEST_REQUEST / 2 / (4096 + 16));
        assert_eq!(fitting(&[LONGEST_REQUEST], size), 1);
    }
}
