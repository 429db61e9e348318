//! An aya loader without the kernel's BTF.

use std::thread;

use aya::EbpfLoader;

/// A root directory below which `/sys/kernel/btf/vmlinux` does not exist.
const ROOT_WITHOUT_BTF: &str = "/proc/self";

/// Returns an aya loader without the kernel's BTF, which the object does not need.
///
/// `EbpfLoader::new` always parses the kernel's BTF, which doubles the peak memory. It opens an absolute path, so a
/// thread with another root directory creates the loader. Without `CAP_SYS_CHROOT` the loader parses the BTF, and the
/// start takes longer.
pub fn without_types() -> EbpfLoader<'static> {
    let made = thread::Builder::new().name("loader".to_owned()).spawn(|| {
        if let Err(error) = change_root() {
            tracing::debug!("cannot change the root directory; the loader parses the kernel's BTF: {error}");
        }
        EbpfLoader::new()
    });
    let mut loader = made.ok().and_then(|thread| thread.join().ok()).unwrap_or_default();
    loader.btf(None);
    loader
}

/// Changes the root directory of the calling thread only.
fn change_root() -> std::io::Result<()> {
    // SAFETY: `CLONE_FS` unshares only the root directory, working directory and umask of this thread, no memory.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(rustix::process::chroot(ROOT_WITHOUT_BTF)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_the_loader_thread_changes_its_root() {
        let inside = thread::spawn(|| change_root().map(|()| Path::new("/sys/kernel/btf/vmlinux").exists()));
        match inside.join().expect("the thread does not panic") {
            Ok(found) => assert!(!found, "{ROOT_WITHOUT_BTF} contains the kernel's BTF"),
            Err(error) => eprintln!("skipped: {error}"),
        }
        drop(without_types());
        assert!(Path::new("/proc/self/status").exists(), "the root of the other threads is unchanged");
    }
}
