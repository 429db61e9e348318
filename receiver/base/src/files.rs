//! Access to files with paths from outside. Reads never wait for the writer of a pipe and are limited in size.
//! Writes never follow a symbolic link, which another user may have created.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a pipe, a device or a socket, [`io::ErrorKind::IsADirectory`] for a
/// directory, [`io::ErrorKind::FileTooLarge`] beyond the limit, and the errors of opening and reading.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Without O_NONBLOCK, opening a pipe waits for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut content = Vec::new();
    // Files may grow during the read, and files in /proc and /sys report a size of zero.
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
    }
    Ok(content)
}

/// Opens a file for appending, or creates a file that only its owner can read. The last component of the path must not be
/// a symbolic link.
///
/// # Errors
/// If the file cannot be opened; `ELOOP` for a symbolic link.
pub fn append_private(path: &Path) -> io::Result<File> {
    appending(0).open(path)
}

/// Opens a regular file as [`append_private`] does, and never waits for the reader of a pipe.
///
/// # Errors
/// If the file cannot be opened, and [`io::ErrorKind::InvalidInput`] for another kind of file.
pub fn append_regular(path: &Path) -> io::Result<File> {
    let file = appending(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn appending(flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY | flags);
    options
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
    pub fn of(file: &File) -> io::Result<Self> {
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
    fn a_renamed_file_keeps_its_identity() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let identity = |path: &Path| FileIdentity::of(&append_private(path)?);
        let first = identity(&one)?;
        fs::rename(&one, &other)?;
        assert_eq!(identity(&other)?, first);
        assert_ne!(identity(&one)?, first);
        Ok(())
    }
}
