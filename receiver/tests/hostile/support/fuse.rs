//! A file system of a hostile user that never answers a read. The names of its files are numbers.

use std::{
    ffi::OsStr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request, SessionACL,
};
use tempfile::TempDir;

/// The inode of the file with the name `0`. The others follow.
const FIRST: u64 = INodeNo::ROOT.0 + 1;
/// The size of a file in bytes.
const SIZE: u64 = 1 << 20;
/// How long the kernel may cache attributes.
const FOREVER: Duration = Duration::from_secs(3600);

/// A mounted file system. Dropping the value unmounts it.
pub struct Fuse {
    waiting: Waiting,
    session: Option<BackgroundSession>,
    folder: TempDir,
}

/// Pending reads; `None` once the file system is about to end.
type Waiting = Arc<Mutex<Option<Vec<ReplyData>>>>;

struct Files(Waiting);

impl Fuse {
    /// Mounts the file system.
    ///
    /// # Errors
    /// If the machine has no `/dev/fuse`.
    pub fn mount() -> std::io::Result<Self> {
        let (folder, waiting) = (tempfile::tempdir()?, Waiting::new(Mutex::new(Some(Vec::new()))));
        let mut config = Config::default();
        config.acl = SessionACL::All;
        let session = fuser::spawn_mount(Files(Arc::clone(&waiting)), folder.path(), &config)?;
        Ok(Self { waiting, session: Some(session), folder })
    }

    /// Returns the path of a file. An open of a file waits for pending reads of that file (`fuse_finish_open()`).
    pub fn file(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    /// Fails all pending and later reads with `EIO`.
    pub fn release(&self) {
        // Dropping a reply fails the read.
        drop(self.waiting.lock().unwrap().take());
    }

    /// Returns the number of pending reads.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().unwrap().as_ref().map_or(0, Vec::len)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.release();
        if let Some(Err(error)) = self.session.take().map(BackgroundSession::umount_and_join) {
            eprintln!("{} stays mounted: {error}", self.folder.path().display());
        }
    }
}

fn attributes(inode: INodeNo) -> FileAttr {
    let kind = if inode == INodeNo::ROOT { FileType::Directory } else { FileType::RegularFile };
    FileAttr {
        ino: inode,
        size: SIZE,
        blocks: SIZE / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Read-ahead runs in the background. A low limit would delay later reads.
        let _ = config.set_max_background(u16::MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str().and_then(|name| name.parse::<u64>().ok()) {
            Some(number) => reply.entry(&FOREVER, &attributes(INodeNo(FIRST + number)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &attributes(inode));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Some(waiting) = self.0.lock().unwrap().as_mut() {
            waiting.push(reply);
        }
    }
}
