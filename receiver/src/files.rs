//! Access to files with paths from outside. Reads never wait for the writer of a pipe and are limited in size.
//! Writes never follow a symbolic link, which another user may have created.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a pipe, a device or a socket, [`io::ErrorKind::IsADirectory`] for a
/// directory, [`io::ErrorKind::FileTooLarge`] beyond the limit, and the errors of opening and reading.
pub(crate) fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
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

/// Creates a file that only its owner can read, or truncates an existing one. The last component of the path must
/// not be a symbolic link.
///
/// # Errors
/// If the file cannot be opened; `ELOOP` for a symbolic link.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

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
        let error = create_private(&link).map(drop).map_err(|error| error.raw_os_error());
        assert_eq!(error, Err(Some(libc::ELOOP)));
        assert_eq!(fs::read_to_string(&target)?, "precious");
        assert_eq!(create_private(&new)?.metadata()?.permissions().mode() & 0o777, 0o600);
        create_private(&target)?;
        assert_eq!(fs::read_to_string(&target)?, "");
        Ok(())
    }
}
