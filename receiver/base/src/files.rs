//! Access to files with paths from outside. Reads never wait for the writer of a pipe and are limited in size.
//! Writes never follow a symbolic link, which another user may have created.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt as _,
            fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
            net::UnixStream,
        },
    },
    path::{Component, Path},
};

use rustix::{
    fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open, openat, readlinkat},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a pipe, a device or a socket, [`io::ErrorKind::IsADirectory`] for a
/// directory, [`io::ErrorKind::FileTooLarge`] beyond the limit, and the errors of opening and reading.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_limited(open_regular(path)?, limit)
}

fn open_regular(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe waits for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Reads an open file of at most `limit` bytes.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] beyond the limit, and the errors of reading.
pub fn read_limited(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // Files may grow during the read, and files in /proc and /sys report a size of zero.
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
    }
    Ok(content)
}

/// Opens a regular file for reading, or connects to a Unix socket. Never waits for the writer of a pipe.
///
/// # Errors
/// If the file cannot be opened or the socket refuses, and [`io::ErrorKind::InvalidInput`] for another kind of file.
pub fn open_or_connect(path: &Path) -> io::Result<OwnedFd> {
    if path.metadata()?.file_type().is_socket() {
        return UnixStream::connect(path).map(OwnedFd::from);
    }
    open_regular(path).map(OwnedFd::from)
}

/// Opens a file for appending, or creates a file that only its owner can read. Another user must not choose the file, so an existing
/// one has no other name (hard link), and it belongs to root or to the user of this process; the last component of the path is no
/// symbolic link, and each link before it belongs to one of both. A pipe must have a reader: the call does not wait for one.
///
/// # Errors
/// If the file cannot be opened; `ELOOP` if it is a symbolic link; [`io::ErrorKind::InvalidInput`] for a pipe without a reader;
/// [`io::ErrorKind::PermissionDenied`] for a file or link of another user, and for a file with several names.
pub fn append_private(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    let (folder, name) = folder_of(path)?;
    let opened = openat(&folder, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let no_reader = || io::Error::new(io::ErrorKind::InvalidInput, "a pipe or a socket that nobody reads");
    let file = File::from(opened.map_err(|error| if error == Errno::NXIO { no_reader() } else { error.into() })?);
    let metadata = file.metadata()?;
    trusted(metadata.uid(), "the file")?;
    if metadata.is_file() && metadata.nlink() > 1 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file has several names (hard links)"));
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens a regular file as [`append_private`] does.
///
/// # Errors
/// See [`append_private`]; also [`io::ErrorKind::InvalidInput`] for a device.
pub fn append_regular(path: &Path) -> io::Result<File> {
    let file = append_private(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Returns an error unless the owner is root or the user of this process.
fn trusted(owner: u32, what: &str) -> io::Result<()> {
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    let text =
        format!("{what} belongs to another user (uid {owner}): let it belong to the user that runs undercurrent");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// The maximum number of symbolic links on a path, as in the kernel (`MAXSYMLINKS` of `include/linux/namei.h`).
const LINKS: usize = 40;

/// Opens the folder of a file component by component, and checks the owner of each symbolic link. Returns it with the name of the
/// file.
fn folder_of(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = |path: &str| open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let mut at = folder(if path.is_absolute() { "/" } else { "." })?;
    let mut left: Vec<OsString> = names(path.parent().unwrap_or(Path::new("")));
    let mut links = 0;
    while let Some(next) = left.pop() {
        let opened = openat(&at, &next, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let status = fstat(&opened)?;
        if !FileType::from_raw_mode(status.st_mode).is_symlink() {
            at = opened;
            continue;
        }
        trusted(status.st_uid, &format!("the symbolic link `{}` on the way to it", next.display()))?;
        links += 1;
        if links > LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(&opened, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            at = folder("/")?;
        }
        left.extend(names(target));
    }
    Ok((at, name))
}

/// Returns the names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

/// The device and the inode of an open file. A renamed file keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns the identity of a file.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn from_file(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _};

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        fs::write(&file, [7; 100])?;
        mkfifoat(CWD, &pipe, Mode::RUSR)?;
        assert_eq!(read_regular(&file, 100)?, [7; 100]);
        let kind = |path: &Path, limit| read_regular(path, limit).map_err(|error| error.kind());
        assert_eq!(kind(&file, 99), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(kind(&pipe, 99), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind(Path::new("/dev/zero"), 99), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind(folder.path(), 99), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind(&folder.path().join("none"), 99), Err(io::ErrorKind::NotFound));
        Ok(())
    }

    #[test]
    fn files_are_opened_and_sockets_connected() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let [file, pipe, socket] = ["file", "pipe", "socket"].map(|name| folder.path().join(name));
        fs::write(&file, "text")?;
        mkfifoat(CWD, &pipe, Mode::RUSR)?;
        let listener = std::os::unix::net::UnixListener::bind(&socket)?;
        let mut text = String::new();
        File::from(open_or_connect(&file)?).read_to_string(&mut text)?;
        assert_eq!(text, "text");
        File::from(open_or_connect(&socket)?).write_all(b"request")?;
        text.clear();
        listener.accept()?.0.read_to_string(&mut text)?;
        assert_eq!(text, "request");
        assert_eq!(open_or_connect(&pipe).map_err(|error| error.kind()).err(), Some(io::ErrorKind::InvalidInput));
        Ok(())
    }

    #[test]
    fn links_are_not_followed_and_new_files_are_private() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (target, link, new) = (folder.path().join("target"), folder.path().join("link"), folder.path().join("new"));
        fs::write(&target, "precious")?;
        std::os::unix::fs::symlink(&target, &link)?;
        let error = append_private(&link).map(drop).map_err(|error| error.raw_os_error());
        assert_eq!(error, Err(Some(libc::ELOOP)));
        assert_eq!(fs::read_to_string(&target)?, "precious");
        assert_eq!(append_private(&new)?.metadata()?.permissions().mode() & 0o777, 0o600);
        append_private(&target)?.write_all(b" and more")?;
        assert_eq!(fs::read_to_string(&target)?, "precious and more");
        Ok(())
    }

    #[test]
    fn unread_pipes_hard_links_and_files_of_others_are_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let kind = |path: &Path| append_private(path).map(drop).map_err(|error| error.kind());
        mkfifoat(CWD, at("pipe"), Mode::RWXU)?;
        assert_eq!(kind(&at("pipe")), Err(io::ErrorKind::InvalidInput));
        let _reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(at("pipe"))?;
        assert_eq!(kind(&at("pipe")), Ok(()), "with a reader");
        fs::write(at("one"), "precious")?;
        fs::hard_link(at("one"), at("other"))?;
        assert_eq!(kind(&at("one")), Err(io::ErrorKind::PermissionDenied));
        if geteuid().is_root() {
            fs::write(at("foreign"), "")?;
            std::os::unix::fs::chown(at("foreign"), Some(65_534), None)?;
            assert_eq!(kind(&at("foreign")), Err(io::ErrorKind::PermissionDenied));
        }
        assert_eq!(kind(Path::new("/dev/null")), Ok(()));
        Ok(())
    }

    #[test]
    fn links_on_the_way_are_followed_if_their_owner_is_trusted() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real"))?;
        std::os::unix::fs::symlink("real", at("relative"))?;
        std::os::unix::fs::symlink(at("real"), at("absolute"))?;
        std::os::unix::fs::symlink("loop", at("loop"))?;
        for way in ["relative", "absolute", "relative/../absolute", "./real"] {
            append_private(&at(way).join("file"))?.write_all(b"x")?;
        }
        assert_eq!(fs::read_to_string(at("real/file"))?, "xxxx");
        let refused = append_private(&at("loop").join("file")).map(drop).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::ELOOP)));
        if geteuid().is_root() {
            std::os::unix::fs::lchown(at("relative"), Some(65_534), None)?;
            let refused = append_private(&at("relative/other")).map(drop).expect_err("refused");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains("`relative`"), "{refused}");
            assert!(!at("real/other").exists());
        }
        Ok(())
    }

    #[test]
    fn a_renamed_file_keeps_its_identity() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let identity = |path: &Path| FileIdentity::from_file(&append_private(path)?);
        let first = identity(&one)?;
        fs::rename(&one, &other)?;
        assert_eq!(identity(&other)?, first);
        assert_ne!(identity(&one)?, first);
        Ok(())
    }
}
