//! The socket of a container runtime: its required owner, its checks and its connection. No other code connects runtime
//! sockets.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat, fstat, open, openat},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt::socket_peercred},
};
use serde::{Deserialize, Serialize};

use crate::cgroup::Uid;

/// `O_NOFOLLOW` with `O_PATH` opens a symbolic link instead of its target, so that the link can be refused.
const PINNED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The required owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    /// Any user is accepted: the configuration or the environment names the socket.
    Any,
    /// Root: the socket has one of the default paths.
    Root,
    /// The user of the runtime directory `run/user/UID` above the socket. The user may replace every file there.
    User(u32),
}

/// A socket of a container runtime.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// Path of the socket.
    pub path: PathBuf,
    /// The required owner.
    pub owner: Owner,
}

/// The reason for refusing a socket that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The file is not a socket.
    #[error("not a socket")]
    NoSocket,
    /// The owner, and the required one.
    #[error("owned by uid {0}, not by uid {1}")]
    Owner(u32, u32),
    /// The user of the process that listens, and the required one.
    #[error("served by a process of uid {0}, not of uid {1}")]
    Peer(u32, u32),
    /// A symbolic link below `run/user/UID`.
    #[error("a symbolic link in a user's runtime directory")]
    Link,
    /// A mount point below `run/user/UID`.
    #[error("another file system is mounted in a user's runtime directory")]
    Mount,
    /// A path out of `run/user/UID`, or into it.
    #[error("the path leaves a user's runtime directory, or leads into one")]
    Path,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

impl Endpoint {
    /// Creates the endpoint of a socket at a default path.
    pub fn usual(path: PathBuf) -> Self {
        let owner = split(&path).map_or(Owner::Root, |(user, ..)| Owner::User(user));
        Self { path, owner }
    }

    /// Creates the endpoint of a socket that the configuration or the environment names. A symbolic link into the
    /// runtime directory of a user is replaced by its target.
    pub fn named(path: PathBuf) -> Self {
        let target = || fs::canonicalize(&path).ok().filter(|target| split(target).is_some());
        let path = if split(&path).is_some() { path } else { target().unwrap_or(path) };
        let owner = split(&path).map_or(Owner::Any, |(user, ..)| Owner::User(user));
        Self { path, owner }
    }

    /// Returns the user to whose containers the socket is restricted; `None` for a socket of the system.
    pub fn user(&self) -> Option<Uid> {
        match self.owner {
            Owner::User(user) if user != 0 => Some(Uid(user)),
            _ => None,
        }
    }

    /// Returns the device and the inode number of the socket.
    ///
    /// # Errors
    /// The kernel's error, or a [`Refusal`].
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let (_, status) = self.open()?;
        Ok((status.st_dev, status.st_ino))
    }

    /// Connects to the socket, and returns a non-blocking stream. Does not wait for a listener: fails with `WouldBlock`
    /// if the listener's backlog is full.
    ///
    /// # Errors
    /// The kernel's error, or a [`Refusal`].
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (socket, _) = self.open()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The descriptor refers to the checked inode, even if the path has been replaced since.
        connect(&stream, &SocketAddrUnix::new(format!("/proc/self/fd/{}", socket.as_raw_fd()))?)?;
        if let Owner::User(user) = self.owner {
            let peer = socket_peercred(&stream)?.uid.as_raw();
            require(peer == user, Refusal::Peer(peer, user))?;
        }
        Ok(stream.into())
    }

    fn open(&self) -> io::Result<(OwnedFd, Stat)> {
        let socket = match (self.owner, split(&self.path)) {
            (Owner::User(user), Some((_, folder, rest))) => walk(folder, rest, user)?,
            _ => outside(&self.path)?,
        };
        let status = fstat(&socket)?;
        require(FileType::from_raw_mode(status.st_mode).is_socket(), Refusal::NoSocket)?;
        if self.owner == Owner::Root {
            require(status.st_uid == 0, Refusal::Owner(status.st_uid, 0))?;
        }
        Ok((socket, status))
    }
}

/// Opens a socket outside of the runtime directories of users.
fn outside(path: &Path) -> io::Result<OwnedFd> {
    let socket = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let target = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
    require(split(&target).is_none(), Refusal::Path)?;
    Ok(socket)
}

/// Opens a socket below a user's runtime directory, component by component. Follows no symbolic link and crosses no mount
/// point: a FUSE file system of the user could block the caller.
fn walk(folder: &Path, rest: &Path, user: u32) -> io::Result<OwnedFd> {
    let mut at = open(folder, PINNED | OFlags::DIRECTORY, Mode::empty())?;
    let mount = mount_id(&at)?;
    // Before any call that the file system executes: the user may have mounted one over the folder.
    require(is_prompt(mount), Refusal::Mount)?;
    owned(&at, user)?;
    for component in rest.components() {
        let Component::Normal(name) = component else { return Err(Refusal::Path.into()) };
        at = openat(&at, name, PINNED, Mode::empty())?;
        require(mount_id(&at)? == mount, Refusal::Mount)?;
        owned(&at, user)?;
    }
    Ok(at)
}

fn owned(file: &OwnedFd, user: u32) -> io::Result<()> {
    let status = fstat(file)?;
    require(!FileType::from_raw_mode(status.st_mode).is_symlink(), Refusal::Link)?;
    require(status.st_uid == user, Refusal::Owner(status.st_uid, user))
}

/// Returns the mount id of a file. `statx` returns it from Linux 5.8 on, and blocks on a FUSE file system.
fn mount_id(file: &OwnedFd) -> io::Result<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// File systems that neither another process nor another machine can delay.
const PROMPT: [&str; 10] = ["tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay"];
/// The mounts of this process, and those of the host.
const MOUNTS: [&str; 2] = ["/proc/self/mountinfo", "/proc/1/mountinfo"];

/// Returns true if the file system of a mount is one of [`PROMPT`]; false for an unknown mount.
fn is_prompt(mount: u64) -> bool {
    let kind_in = |list: &str| {
        let mounts = fs::read(list).ok()?;
        mounts.split(|byte| *byte == b'\n').find_map(|line| kind(str::from_utf8(line).ok()?, mount).map(str::to_owned))
    };
    MOUNTS.iter().find_map(|list| kind_in(list)).is_some_and(|kind| PROMPT.contains(&&*kind))
}

/// Returns the type of the file system in a line of `mountinfo` (proc_pid_mountinfo(5)), if the line is that of the mount.
fn kind(line: &str, mount: u64) -> Option<&str> {
    let (first, rest) = line.split_once(' ')?;
    if first.parse() != Ok(mount) {
        return None;
    }
    rest.split_once(" - ")?.1.split(' ').next()
}

fn require(condition: bool, refusal: Refusal) -> io::Result<()> {
    if condition { Ok(()) } else { Err(refusal.into()) }
}

/// Splits a path at a user's runtime directory: the uid, the directory, and the path below it. `None` outside of
/// runtime directories.
fn split(path: &Path) -> Option<(u32, &Path, &Path)> {
    let names: Vec<&OsStr> = path.components().map(Component::as_os_str).collect();
    let (at, user) = names.windows(3).enumerate().find_map(|(at, window)| {
        let is_directory = window[0] == "run" && window[1] == "user";
        if is_directory { Some((at, uid(window[2])?)) } else { None }
    })?;
    let below = names.len() - (at + 3);
    let directory = path.ancestors().nth(below)?;
    let rest = path.strip_prefix(directory).ok()?;
    Some((user, directory, rest))
}

fn uid(name: &OsStr) -> Option<u32> {
    let digits = name.as_bytes();
    if digits.iter().all(u8::is_ascii_digit) { str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_run_user_belongs_to_its_user() {
        for (path, owner) in [
            ("/run/user/1000/podman/podman.sock", Owner::User(1000)),
            ("/proc/1/root/run/user/1000/docker.sock", Owner::User(1000)),
            ("/var/run//user/1000/./docker.sock", Owner::User(1000)),
            ("/run/../run/user/7/docker.sock", Owner::User(7)),
            ("/run/user/x/docker.sock", Owner::Any),
            ("/run/docker.sock", Owner::Any),
        ] {
            assert_eq!(Endpoint::named(path.into()).owner, owner, "{path}");
        }
        assert_eq!(Endpoint::usual("/run/docker.sock".into()).owner, Owner::Root);
        assert_eq!(Endpoint::usual("/run/user/0/podman/podman.sock".into()).owner, Owner::User(0));
        assert_eq!(Endpoint::usual("/run/user/0/podman/podman.sock".into()).user(), None, "root's containers");
    }

    #[test]
    fn the_type_of_a_mount_comes_after_its_optional_fields() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw";
        assert_eq!((kind(line, 36), kind(line, 35)), (Some("ext3"), None));
        assert_eq!(kind("7 1 0:5 / /x rw - fuse.sshfs a rw", 7), Some("fuse.sshfs"));
        assert!(["", "36", "36 ", "36 -", "36 35 98:0 /"].iter().all(|line| kind(line, 36).is_none()));
        let here = open("/proc/self", PINNED, Mode::empty()).expect("a folder");
        assert!(!is_prompt(mount_id(&here).expect("an id")) && !is_prompt(u64::MAX));
    }

    #[test]
    fn a_path_is_split_at_the_runtime_directory() {
        let (user, directory, rest) = split(Path::new("/h/run/user/7/podman/podman.sock")).expect("below one");
        assert_eq!((user, directory, rest), (7, Path::new("/h/run/user/7"), Path::new("podman/podman.sock")));
    }
}
