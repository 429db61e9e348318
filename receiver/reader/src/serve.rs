//! The process of the reader.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    Service,
    message::{CgroupKey, FileReply, FileRequest, ForeignReply, ForeignRequest},
};
use crate::{
    causes::chain,
    cgroup::{CgroupId, CgroupPath, Hierarchy, Limits, UsageError, netns_of},
    channel::{Channel, ChannelError},
    files::{FileIdentity, append_regular},
    sysfs::Sysfs,
};

/// The maximum number of concurrent requests that may block. Each has a thread, because a file system of another user
/// may block it indefinitely.
pub const THREADS: usize = 32;
/// The stack size of these threads, in bytes. They parse environments.
const STACK: usize = 256 << 10;

/// Paths that the reader may read and open besides `/proc` and the sockets of runtimes. The configuration determines them, and
/// the worker cannot change them.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The cgroups.
    pub hierarchy: Option<Hierarchy>,
    /// The tree with the power meters.
    pub sysfs: Sysfs,
    /// The files of the outputs.
    pub outputs: Vec<PathBuf>,
}

/// Serves the worker until it closes the channels. The process must have dropped its other privileges.
///
/// # Errors
/// If the worker sends a malformed message.
pub fn serve(mut files: Channel, foreign: Channel, places: &Places) -> Result<(), String> {
    let outputs: Arc<[PathBuf]> = places.outputs.clone().into();
    thread::spawn(|| serve_foreign(foreign, outputs));
    loop {
        let request = match files.receive() {
            Ok((request, _)) => request,
            Err(ChannelError::Closed) => return Ok(()),
            Err(error) => return Err(chain(&error)),
        };
        let reply = read(request, places.hierarchy.as_ref(), &places.sysfs).unwrap_or_else(FileReply::Failed);
        files.send(&reply, &[]).map_err(|error| chain(&error))?;
    }
}

/// Executes a request that reads files of the kernel.
fn read(request: FileRequest, hierarchy: Option<&Hierarchy>, sysfs: &Sysfs) -> Result<FileReply, String> {
    let text = |error: io::Error| error.to_string();
    match request {
        FileRequest::Namespace(process) => return netns_of(process).map(FileReply::Inode).map_err(text),
        FileRequest::Inode(path) => return inode(&path).map(FileReply::Inode).map_err(text),
        FileRequest::PowerMeters => return Ok(FileReply::PowerMeters(sysfs.meters())),
        _ => {}
    }
    let hierarchy = hierarchy.ok_or("no cgroups are mounted")?;
    Ok(match request {
        FileRequest::Scan(cgroups, depth) => {
            let scan = hierarchy.scan(Limits { cgroups, depth }).map_err(text)?;
            let cgroups = scan.cgroups.into_iter().map(|cgroup| (cgroup.id.0, cgroup.path.as_bytes().to_vec()));
            FileReply::Scan(cgroups.collect(), scan.beyond, scan.unreadable)
        }
        FileRequest::Held(places) => FileReply::Held(each(places, |id, path| hierarchy.holds(id, path))),
        FileRequest::Usages(places) => FileReply::Usages(each(places, |id, path| hierarchy.usage(id, path))),
        FileRequest::RootThreads => FileReply::Threads(hierarchy.root_threads().map_err(text)?),
        FileRequest::Throttled(places) => {
            let throttled = |(id, path): (Option<u64>, Vec<u8>)| throttled(hierarchy, id, &CgroupPath::new(&path));
            FileReply::Throttled(places.into_iter().map(throttled).collect())
        }
        FileRequest::Process(path) => {
            let process = hierarchy.processes(&CgroupPath::new(&path), 1).map_err(text)?.first().copied();
            FileReply::Process(process, process.and_then(|process| netns_of(process).ok()))
        }
        FileRequest::InNamespaces(claims) => {
            let held = |(path, inode): (Vec<u8>, u32)| hierarchy.is_in_namespace(&CgroupPath::new(&path), inode);
            FileReply::Held(claims.into_iter().map(held).collect())
        }
        FileRequest::Namespace(_) | FileRequest::Inode(_) | FileRequest::PowerMeters => {
            return Err("this request needs no hierarchy".to_owned());
        }
    })
}

fn each<T>(places: Vec<CgroupKey>, of: impl Fn(CgroupId, &CgroupPath) -> T) -> Vec<T> {
    places.into_iter().map(|(id, path)| of(CgroupId(id), &CgroupPath::new(&path))).collect()
}

fn throttled(hierarchy: &Hierarchy, id: Option<u64>, path: &CgroupPath) -> Result<(u64, Option<Duration>), UsageError> {
    let id = id.map_or_else(|| hierarchy.id(path).map_err(|_| UsageError::Gone), |id| Ok(CgroupId(id)))?;
    Ok((id.0, hierarchy.throttled(id, path)?))
}

/// Returns the inode number of the file at a path, following symbolic links.
pub fn inode(path: &std::path::Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(path)?.ino())
}

/// Starts a thread for each request that may block.
fn serve_foreign(mut requests: Channel, outputs: Arc<[PathBuf]>) {
    let Ok(replies) = requests.try_clone() else { return };
    let (replies, under_way) = (Arc::new(Mutex::new(replies)), Arc::new(AtomicUsize::new(0)));
    while let Ok(((number, request), _)) = requests.receive::<(u64, ForeignRequest)>() {
        if under_way.fetch_add(1, Ordering::Relaxed) >= THREADS {
            under_way.fetch_sub(1, Ordering::Relaxed);
            reply(&replies, number, &ForeignReply::Busy, None);
            continue;
        }
        let (replies_of_thread, count, outputs) = (Arc::clone(&replies), Arc::clone(&under_way), Arc::clone(&outputs));
        let started = thread::Builder::new().stack_size(STACK).spawn(move || {
            let (answer, descriptor) = execute(request, &outputs);
            count.fetch_sub(1, Ordering::Relaxed);
            reply(&replies_of_thread, number, &answer, descriptor);
        });
        if let Err(error) = started {
            under_way.fetch_sub(1, Ordering::Relaxed);
            reply(&replies, number, &ForeignReply::Failed(error.to_string()), None);
        }
    }
}

fn execute(request: ForeignRequest, outputs: &[PathBuf]) -> (ForeignReply, Option<OwnedFd>) {
    match request {
        ForeignRequest::Service(process) => match Service::of_process(process) {
            Ok(service) => (ForeignReply::Service(service), None),
            Err(error) => (ForeignReply::Failed(error.to_string()), None),
        },
        ForeignRequest::FoundSockets(places) => (ForeignReply::FoundSockets(places.look()), None),
        ForeignRequest::Connect(endpoint) => match endpoint.connect() {
            Ok(stream) => (ForeignReply::Connected(Ok(())), Some(stream.into())),
            Err(error) => (ForeignReply::Connected(Err(error.into())), None),
        },
        ForeignRequest::Open(index, identity) => match open(outputs.get(index), identity) {
            Ok(Some(file)) => (ForeignReply::Opened, Some(file.into())),
            Ok(None) => (ForeignReply::Unchanged, None),
            Err(error) => (ForeignReply::Failed(error.to_string()), None),
        },
    }
}

/// Opens the file of an output; `None` if it is the file with this identity.
fn open(path: Option<&PathBuf>, identity: FileIdentity) -> io::Result<Option<File>> {
    let file = append_regular(path.ok_or(io::ErrorKind::NotFound)?)?;
    Ok((FileIdentity::of(&file)? != identity).then_some(file))
}

fn reply(replies: &Mutex<Channel>, number: u64, reply: &ForeignReply, descriptor: Option<OwnedFd>) {
    let descriptors: Vec<_> = descriptor.iter().map(OwnedFd::as_fd).collect();
    // The worker has ended if the send fails.
    drop(replies.lock().unwrap_or_else(PoisonError::into_inner).send(&(number, reply), &descriptors));
}
