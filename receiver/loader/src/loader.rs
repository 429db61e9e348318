//! An aya loader without the kernel's BTF.

use aya::EbpfLoader;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns an aya loader without the kernel's BTF, which the object does not need.
///
/// `EbpfLoader::new` always parses the kernel's BTF (aya 0.14), which doubles the peak memory of the start. While the process may
/// open no further file, it finds none. Other threads would notice the limit, so a process with several threads parses the BTF.
pub fn without_types() -> EbpfLoader<'static> {
    let limited = is_single_threaded().then(NoFiles::begin).flatten();
    let mut loader = EbpfLoader::new();
    drop(limited);
    loader.btf(None);
    loader
}

/// While the value lives, this process opens no file.
struct NoFiles(Rlimit);

impl NoFiles {
    /// Lowers the limit; `None` if the kernel refuses.
    fn begin() -> Option<Self> {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum }).ok()?;
        Some(Self(before))
    }
}

impl Drop for NoFiles {
    fn drop(&mut self) {
        if let Err(error) = setrlimit(Resource::Nofile, self.0) {
            tracing::error!("cannot restore the limit of open files: {error}");
        }
    }
}

fn is_single_threaded() -> bool {
    procfs::process::Process::myself().and_then(|process| process.stat()).is_ok_and(|stat| stat.num_threads == 1)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_open_again_afterwards() {
        // The limit belongs to the process, so the test has one of its own.
        // SAFETY: the child only calls functions that a fork of a process with threads allows: system calls, and no allocation
        // before the limit is lowered. It ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let limited = NoFiles::begin();
            let refused = File::open("/dev/null").is_err_and(|error| error.raw_os_error() == Some(libc::EMFILE));
            drop(limited);
            let opened = File::open("/dev/null").is_ok();
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!(refused && opened))) }
        }
        let mut status = 0;
        // SAFETY: `status` lives during the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child saw another limit");
    }
}
