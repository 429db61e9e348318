//! The program of the parts, and their start by `execveat`.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsString},
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    path::Path,
    ptr,
};

use rustix::{
    fs::{Mode, OFlags, open},
    io::{FdFlags, fcntl_setfd},
    net::{AddressFamily, sockopt::socket_domain},
};

use super::process::Process;

/// The program that the parts execute. It stays the same if another file replaces it, or if this process loses access to it.
pub struct Program(OwnedFd);

impl Program {
    /// Returns the program of this process.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or the limit of open descriptors is reached.
    pub fn own() -> io::Result<Self> {
        Self::open(Path::new("/proc/self/exe"))
    }

    /// Returns the program in a file, for tests.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Executes the program in a child process, under a name, without an environment, and with `channels` as its only descriptors
    /// besides the standard ones. The child runs `prepare` before. This process must be single-threaded.
    ///
    /// # Errors
    /// If the kernel cannot create the process. If it cannot execute the program, the child logs the reason, and its channels close.
    pub fn start(
        &self,
        name: &CStr,
        channels: Vec<OwnedFd>,
        prepare: impl FnOnce() -> Result<(), String>,
    ) -> io::Result<Process> {
        let mut keep = channels;
        keep.push(self.0.try_clone()?);
        Process::start(name, keep, |mut kept| {
            let program = kept.pop().ok_or_else(|| "no program".to_owned())?;
            prepare()?;
            let error = execute(program.as_fd(), name, &kept);
            Err(format!(
                "cannot execute the program again: {error}; a security profile must allow it to execute itself"
            ))
        })
    }
}

/// Replaces the program of this process. The arguments are the name and the numbers of the channels. Returns if it fails.
fn execute(program: BorrowedFd<'_>, name: &CStr, channels: &[OwnedFd]) -> io::Error {
    let inherited = channels.iter().try_for_each(|channel| fcntl_setfd(channel, FdFlags::empty()));
    let numbers = channels.iter().map(|channel| CString::new(channel.as_raw_fd().to_string()));
    let numbers = match inherited.map_err(io::Error::from).and_then(|()| Ok(numbers.collect::<Result<Vec<_>, _>>()?)) {
        Ok(numbers) => numbers,
        Err(error) => return error,
    };
    let arguments = [name].into_iter().chain(numbers.iter().map(CString::as_c_str)).map(CStr::as_ptr);
    let arguments: Vec<_> = arguments.chain([ptr::null()]).collect();
    let environment: [*const libc::c_char; 1] = [ptr::null()];
    // SAFETY: the path is empty, and both lists of strings end with a null pointer and outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Returns the channels whose numbers are the arguments of this process; `None` if these are not the arguments of [`execute`].
pub fn inherited<const N: usize>(arguments: &[OsString]) -> Option<[OwnedFd; N]> {
    let number = |argument: &OsString| argument.to_str()?.parse::<RawFd>().ok().filter(|number| *number > 2);
    let numbers: Vec<RawFd> = arguments.iter().map(number).collect::<Option<_>>()?;
    let is_channel = |number: &RawFd| {
        // SAFETY: the descriptor is only used during this call. The kernel refuses the number of a closed descriptor.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
        socket_domain(descriptor) == Ok(AddressFamily::UNIX)
    };
    let distinct: BTreeSet<RawFd> = numbers.iter().copied().collect();
    if !numbers.iter().all(is_channel) || distinct.len() != numbers.len() {
        return None;
    }
    // SAFETY: the descriptors are open, differ, and belong to nobody else: the program has just begun.
    let channels = numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    let channels: [OwnedFd; N] = channels.collect::<Vec<_>>().try_into().ok()?;
    channels.iter().try_for_each(|channel| fcntl_setfd(channel, FdFlags::CLOEXEC)).ok()?;
    Some(channels)
}
