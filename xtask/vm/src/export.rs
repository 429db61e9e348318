//! Shares folders of this machine with a guest, through virtiofs.

use std::{
    collections::BTreeSet,
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, net::UnixListener, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx},
    mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount},
    thread::{UnshareFlags, unshare_unsafe},
};

use super::{process::Process, tools::Virtiofsd};

/// A file system that is bind-mounted read-only below the folder that a daemon serves.
struct Bind {
    source: CString,
    target: CString,
}

/// Serves a folder, writable, on a socket.
pub fn writable(daemon: &Virtiofsd, folder: &Path, socket: &Path) -> anyhow::Result<Process> {
    let (command, listener) = command(daemon, folder, socket, "auto")?;
    Process::start(command, &socket.with_extension("log"), vec![listener])
}

/// Serves this machine's root, read-only, on a socket. The guest sees the root file system and those mounted file systems that
/// contain one of `paths`. `scratch` is an empty folder.
pub fn root(daemon: &Virtiofsd, paths: &[PathBuf], scratch: &Path, socket: &Path) -> anyhow::Result<Process> {
    let mounts: BTreeSet<_> = paths.iter().flat_map(|path| path.ancestors()).filter(|path| is_mount(path)).collect();
    // In a sorted set, a mount point precedes the mount points below it.
    let bind = |source: &Path| {
        let target = scratch.join(source.strip_prefix("/").unwrap_or(source));
        Ok(Bind { source: c_string(source)?, target: c_string(&target)? })
    };
    let binds = [Path::new("/")].into_iter().chain(mounts).map(bind).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut command, listener) = command(daemon, scratch, socket, "always")?;
    // SAFETY: between fork and exec the closure makes system calls only, on strings made before.
    unsafe { command.pre_exec(move || enter(&binds)) };
    Process::start(command, &socket.with_extension("log"), vec![listener])
}

/// Mounts the folders in a private mount namespace that ends with the daemon. The bind mounts are read-only, so the daemon cannot
/// write for the guest.
fn enter(binds: &[Bind]) -> io::Result<()> {
    // SAFETY: the flag leaves memory and file descriptors shared as they were.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for Bind { source, target } in binds {
        mount_bind(source.as_c_str(), target.as_c_str())?;
        mount_remount(target.as_c_str(), MountFlags::BIND | MountFlags::RDONLY, c"")?;
    }
    Ok(())
}

fn command(daemon: &Virtiofsd, folder: &Path, socket: &Path, cache: &str) -> anyhow::Result<(Command, OwnedFd)> {
    // Listen before the daemon starts, so that QEMU always finds the socket.
    let listener = UnixListener::bind(socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
    let descriptor = format!("--fd={}", listener.as_raw_fd());
    let command = match daemon {
        Virtiofsd::C(program) => {
            let mut command = Command::new(program);
            let source = format!("source={}", folder.display());
            command.args([descriptor.as_str(), "--thread-pool-size=4", "-o", &source, "-o", "sandbox=chroot"]);
            command.args(["-o", "log_level=warn", "-o", &format!("cache={cache}")]);
            command
        }
        Virtiofsd::Rust(program) => {
            let mut command = Command::new(program);
            command.args([&descriptor, "--thread-pool-size=4", "--sandbox=chroot", "--log-level=warn"]);
            command.arg(format!("--cache={cache}")).arg("--shared-dir").arg(folder);
            command
        }
    };
    Ok((command, listener.into()))
}

/// True if the path is a mount point. Kernels before 5.8 do not report this: there the guest sees only the root file system.
fn is_mount(path: &Path) -> bool {
    path != Path::new("/")
        && statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
            .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn c_string(path: &Path) -> anyhow::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).with_context(|| format!("{} contains a zero byte", path.display()))
}
