//! The file of an output. Lines are appended, and the file is replaced after another program moved or removed it.

use std::{
    fs::File,
    io::{self, Seek as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::files::{FileIdentity, append_private};

/// A handle for the replacement of an output's file. Clones share it.
#[derive(Clone)]
pub struct OutputFile(Arc<Mutex<State>>);

struct State {
    /// The file that the output writes, or will write next. `None` for devices and pipes.
    identity: Option<FileIdentity>,
    /// The file that replaces the current one.
    next: Option<File>,
}

impl OutputFile {
    /// Opens a file for appending. Returns the file and the handle.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<(File, Self)> {
        let file = append_private(path)?;
        let identity = if file.metadata()?.is_file() { Some(FileIdentity::from_file(&file)?) } else { None };
        let state = State { identity, next: None };
        Ok((file, Self(Arc::new(Mutex::new(state)))))
    }

    /// Returns the identity of a regular file; `None` for another kind of file, which is never replaced.
    #[must_use]
    pub fn identity(&self) -> Option<FileIdentity> {
        self.state().identity
    }

    /// Replaces the file before the next line.
    ///
    /// # Errors
    /// If the kernel does not identify the new file.
    pub fn replace(&self, file: File) -> io::Result<()> {
        let identity = FileIdentity::from_file(&file)?;
        *self.state() = State { identity: Some(identity), next: Some(file) };
        Ok(())
    }

    /// Returns the file that replaces the current one, once.
    pub(super) fn next(&self) -> Option<File> {
        self.state().next.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if a file ends with an incomplete line, as after a crash. A file that cannot be read counts as complete.
pub(super) fn is_torn(file: &File, path: &Path) -> bool {
    let last = || {
        let (mut file, mut byte) = (file, [0]);
        let length = file.seek(io::SeekFrom::End(0))?;
        if length > 0 {
            File::open(path)?.read_exact_at(&mut byte, length - 1)?;
        }
        io::Result::Ok(length > 0 && byte != *b"\n")
    };
    file.metadata().is_ok_and(|metadata| metadata.is_file()) && last().unwrap_or(false)
}
