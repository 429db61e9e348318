//! A part's process.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd},
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid},
    time::Timespec,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Descriptors that every part keeps: standard input, output and error.
const STANDARD: [RawFd; 3] = [0, 1, 2];
/// The exit status of a part that failed.
const FAILED: i32 = 1;

/// A child process that runs a part. Its end closes the channels to it.
pub struct Process {
    pid: Pid,
    /// Readable once the process has ended.
    handle: OwnedFd,
}

impl Process {
    /// Runs a function in a child process, which keeps the standard descriptors and those that are named, and ends with the
    /// function. The child ignores the signals that end the sidecar: it ends when its channels are closed.
    ///
    /// # Errors
    /// The kernel's refusal of a process, or that this process has more than one thread: a lock that another thread holds
    /// would stay locked in the child.
    pub fn start(
        name: &CStr,
        keep: Vec<OwnedFd>,
        run: impl FnOnce(Vec<OwnedFd>) -> Result<(), String>,
    ) -> io::Result<Self> {
        if !is_single_threaded() {
            return Err(io::Error::other("this process has several threads"));
        }
        // SAFETY: this process has one thread, so the child may do everything that this process may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let ended = catch_unwind(AssertUnwindSafe(|| child(name, keep, run)));
                // SAFETY: it ends the process at once: the parent's buffers and destructors are the parent's.
                unsafe { libc::_exit(if ended.is_ok_and(|succeeded| succeeded) { 0 } else { FAILED }) }
            }
            pid => {
                let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
                Ok(Self { pid, handle: pidfd_open(pid, PidfdFlags::empty())? })
            }
        }
    }

    /// The number of the process.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Ends the process at once.
    pub fn kill(&self) {
        // One that has ended needs no signal.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// Waits until the process has ended. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch the process.
    pub async fn ended(&self) -> io::Result<()> {
        // SAFETY: the borrowed descriptor stays open for as long as `self` is borrowed.
        let handle = unsafe { AsyncFd::register_with_interest(self.handle.as_fd(), Interest::READABLE) }?;
        handle.readable().await?.retain_ready();
        Ok(())
    }

    /// Waits until the process has ended, for so long at most; false if it still runs.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Ok(Some(_)) | Err(_) => return true,
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&timeout));
        }
    }
}

/// What a child does; false if it failed.
fn child(name: &CStr, keep: Vec<OwnedFd>, run: impl FnOnce(Vec<OwnedFd>) -> Result<(), String>) -> bool {
    let prepared = rustix::thread::set_name(name).map_err(io::Error::from).and_then(|()| close_all_but(&keep));
    ignore_signals();
    let ended = prepared.map_err(|error| error.to_string()).and_then(|()| run(keep));
    if let Err(error) = &ended {
        tracing::error!("{} failed: {error}", name.to_string_lossy());
    }
    ended.is_ok()
}

/// Closes every descriptor but the standard ones and these.
fn close_all_but(keep: &[OwnedFd]) -> io::Result<()> {
    let mut keep: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).chain(STANDARD).collect();
    keep.sort_unstable();
    let after = keep.iter().skip(1).map(|next| next - 1).chain([RawFd::MAX]);
    for (first, last) in keep.iter().map(|kept| kept + 1).zip(after).filter(|(first, last)| first <= last) {
        // SAFETY: the values that own these descriptors are not used in this process, and never dropped.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Ignores the signals that a terminal or a service manager sends to all processes. The kernel reaps the children.
fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD] {
        // SAFETY: it sets no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// True if no thread but the caller runs in this process.
pub fn is_single_threaded() -> bool {
    procfs::process::Process::myself().and_then(|process| process.stat()).is_ok_and(|stat| stat.num_threads == 1)
}
