//! A loader that has not read the kernel's types.

use std::thread;

use aya::EbpfLoader;

/// Where no path to the kernel's types leads.
const ELSEWHERE: &str = "/proc/self";

/// An aya loader without the kernel's types, which the object does not need.
///
/// `EbpfLoader::new` reads all of them and takes them apart, which doubles the peak of memory, before anybody can tell
/// it not to. It looks for them by an absolute path, so it is made by a thread that has another root. Where the thread
/// is denied that (no `CAP_SYS_CHROOT`), the start takes longer and nothing else changes.
pub fn without_types() -> EbpfLoader<'static> {
    let made = thread::Builder::new().name("loader".to_owned()).spawn(|| {
        if let Err(error) = elsewhere() {
            tracing::debug!("the loader reads the kernel's types in vain: {error}");
        }
        EbpfLoader::new()
    });
    let mut loader = made.ok().and_then(|thread| thread.join().ok()).unwrap_or_default();
    loader.btf(None);
    loader
}

/// Gives the calling thread a root of its own.
fn elsewhere() -> std::io::Result<()> {
    // SAFETY: it parts this thread's root and working directory from those of the other threads, and no memory.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(rustix::process::chroot(ELSEWHERE)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_the_loaders_thread_sees_another_root() {
        let inside = thread::spawn(|| elsewhere().map(|()| Path::new("/sys/kernel/btf/vmlinux").exists()));
        match inside.join().expect("it does not panic") {
            Ok(found) => assert!(!found, "{ELSEWHERE} leads to the kernel's types"),
            Err(error) => eprintln!("skipped: {error}"),
        }
        drop(without_types());
        assert!(Path::new("/proc/self/status").exists(), "the root of the other threads is as it was");
    }
}
