//! The process of a part.

use std::{
    ffi::CStr,
    io,
    net::Shutdown,
    os::{
        fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{FdFlags, fcntl_setfd},
    process::{Pid, PidfdFlags, WaitOptions, getpid, pidfd_open, waitpid},
    time::Timespec,
};
use tokio::io::{Interest, unix::AsyncFd};

/// `fcntl(2)`; libc does not define it for every target.
const F_SETSIG: libc::c_int = 10;
/// Descriptors that every part keeps: standard input, output and error.
const STANDARD: [RawFd; 3] = [0, 1, 2];
/// The exit status of a part that failed.
const FAILED: i32 = 1;

/// A child process that runs a part. The channels to it close when it ends.
pub struct Process {
    pid: Pid,
    /// A pidfd, readable once the process has ended.
    handle: OwnedFd,
    /// The kernel kills the process when this end is closed or shut down.
    life: UnixStream,
}

impl Process {
    /// Runs a function in a child process, and exits the child when the function returns. The child keeps the standard
    /// descriptors and the descriptors in `keep`. It ignores the signals that stop the sidecar: it ends when its
    /// channels are closed.
    ///
    /// # Errors
    /// If the kernel cannot create the process, or if this process has several threads, because a lock that another
    /// thread holds would stay locked in the child.
    pub fn start(
        name: &CStr,
        keep: Vec<OwnedFd>,
        run: impl FnOnce(Vec<OwnedFd>) -> Result<(), String>,
    ) -> io::Result<Self> {
        if !is_single_threaded() {
            return Err(io::Error::other("this process has several threads"));
        }
        let (life, watched) = UnixStream::pair()?;
        // Bytes from the parent have no effect.
        watched.shutdown(Shutdown::Read)?;
        // SAFETY: this process is single-threaded, so no other thread holds a lock that the child would inherit locked.
        // The child is not limited to async-signal-safe functions.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let ended = catch_unwind(AssertUnwindSafe(|| child(watched, name, keep, run)));
                // SAFETY: `_exit` ends the process without destructors and exit handlers, which belong to the parent.
                unsafe { libc::_exit(if ended.is_ok_and(|succeeded| succeeded) { 0 } else { FAILED }) }
            }
            pid => {
                let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
                Ok(Self { pid, handle: pidfd_open(pid, PidfdFlags::empty())?, life })
            }
        }
    }

    /// Returns the process id.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Returns another handle of the process.
    ///
    /// # Errors
    /// If the limit of open descriptors is reached.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.handle.try_clone()
    }

    /// Lets the kernel kill the process.
    pub fn kill(&self) {
        // The call fails if the process has already ended.
        let _ = self.life.shutdown(Shutdown::Both);
    }

    /// Waits until the process has ended. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot register the descriptor.
    pub async fn ended(&self) -> io::Result<()> {
        ended(self.handle.as_fd()).await
    }

    /// Waits until the process has ended, or for the given time. Returns false if the process still runs.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Ok(Some(_)) | Err(_) => return true,
            }
            if until <= Instant::now() {
                return false;
            }
            wait_until(self.handle.as_fd(), until);
        }
    }
}

/// A process that another one started.
pub struct Relative {
    number: u32,
    /// A pidfd.
    handle: OwnedFd,
}

impl Relative {
    /// Returns the process with an id and a pidfd.
    #[must_use]
    pub const fn new(number: u32, handle: OwnedFd) -> Self {
        Self { number, handle }
    }

    /// Returns the process id.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Waits until the process has ended. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot register the descriptor.
    pub async fn ended(&self) -> io::Result<()> {
        ended(self.handle.as_fd()).await
    }

    /// Waits until the process has ended, or for the given time. Returns false if the process still runs.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            if wait_until(self.handle.as_fd(), until) {
                return true;
            }
            if until <= Instant::now() {
                return false;
            }
        }
    }
}

/// Waits until a pidfd is readable. Needs a tokio runtime.
async fn ended(handle: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor stays open while it is borrowed, and `AsyncFd` does not outlive the borrow.
    let handle = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?;
    handle.readable().await?.retain_ready();
    Ok(())
}

/// Waits until a pidfd is readable, until a time, or for a signal. Returns true if it is readable.
fn wait_until(handle: BorrowedFd<'_>, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Runs the part in the child process. Returns false if it failed.
fn child(
    watched: UnixStream,
    name: &CStr,
    mut keep: Vec<OwnedFd>,
    run: impl FnOnce(Vec<OwnedFd>) -> Result<(), String>,
) -> bool {
    // A program that the child executes keeps it open.
    let bound = end_with(&watched).and_then(|()| Ok(fcntl_setfd(&watched, FdFlags::empty())?));
    if let Err(error) = bound {
        tracing::error!("cannot bind the end of {} to that of its parent: {error}", name.to_string_lossy());
        return false;
    }
    keep.push(watched.into());
    let prepared = rustix::thread::set_name(name).map_err(io::Error::from).and_then(|()| close_all_but(&keep));
    ignore_signals();
    // Stays open until the process ends.
    let _watched = keep.pop();
    let ended = prepared.map_err(|error| error.to_string()).and_then(|()| run(keep));
    if let Err(error) = &ended {
        tracing::error!("{} failed: {error}", name.to_string_lossy());
    }
    ended.is_ok()
}

/// Lets the kernel kill this process when the other end of a socket is closed, also if this process was stopped or waits in a
/// system call. A process that the parent's user may not signal does not receive the parent's death signal (`prctl(2)`).
fn end_with(other: &UnixStream) -> io::Result<()> {
    let done = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let (socket, process) = (other.as_raw_fd(), getpid().as_raw_nonzero().get());
    // SAFETY: the call takes numbers only.
    done(unsafe { libc::fcntl(socket, libc::F_SETOWN, process) })?;
    // SAFETY: the call takes numbers only.
    done(unsafe { libc::fcntl(socket, F_SETSIG, libc::SIGKILL) })?;
    // SAFETY: the call takes numbers only.
    done(unsafe { libc::fcntl(socket, libc::F_SETFL, libc::O_ASYNC) })?;
    // The other end may have been closed before.
    let closed = poll(&mut [PollFd::new(other, PollFlags::HUP)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if closed > 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// Closes all descriptors except the standard descriptors and the descriptors in `keep`.
fn close_all_but(keep: &[OwnedFd]) -> io::Result<()> {
    let mut keep: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).chain(STANDARD).collect();
    keep.sort_unstable();
    let after = keep.iter().skip(1).map(|next| next - 1).chain([RawFd::MAX]);
    for (first, last) in keep.iter().map(|kept| kept + 1).zip(after).filter(|(first, last)| first <= last) {
        // SAFETY: no value that owns one of these descriptors is used or dropped in this process after the fork.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Ignores the signals that a terminal or a service manager sends to all processes. With `SIGCHLD` ignored, the kernel
/// reaps child processes.
fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD] {
        // SAFETY: `SIG_IGN` installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Returns true if this process has one thread.
pub fn is_single_threaded() -> bool {
    procfs::process::Process::myself().and_then(|process| process.stat()).is_ok_and(|stat| stat.num_threads == 1)
}
