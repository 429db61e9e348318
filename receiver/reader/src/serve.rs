//! The process of the reader.

use std::{
    cell::OnceCell,
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    EnvironError, Refusal, Service, SocketPaths,
    message::{
        Answer, CgroupKey, CountAllThreads, CountThreads, EXCHANGE, Exchange, ExchangeError, FileRequest, FindProcess,
        FindService, FindSockets, ForeignRequest, Held, InNamespaces, Inode, Namespace, Open, OpenOrConnect,
        ReadMeters, ReadPartUsages, ReadSoftirqThreads, RootThreads, Scan, Throttled, Usages,
    },
};
use crate::{
    causes::chain,
    cgroup::{CgroupId, CgroupPath, Hierarchy, Limits, UsageError, netns_of},
    channel::{Call as _, Channel, ChannelError, Reply},
    files::{FileIdentity, append_regular, open_or_connect},
    ksoftirqd, load,
    process_usage::ProcessUsage,
    sysfs::{self, Sysfs},
};

/// The maximum number of concurrent requests that may block. Each has a thread, because a file system of another user
/// may block it indefinitely.
pub const THREADS: usize = 32;
/// The minimum time between two readings of the power meters.
const READINGS: Duration = Duration::from_millis(50);
/// The maximum number of processes of a cgroup among which one is searched.
const MEMBERS: usize = 1 << 16;
/// The maximum number of processes in a request for usages.
const PARTS: usize = 8;
/// The stack size of these threads, in bytes. They parse environments.
const STACK: usize = 256 << 10;

/// Paths that the reader may read and open besides `/proc` and the sockets of runtimes. The configuration determines them, and
/// the worker cannot change them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Places {
    /// The cgroups.
    pub hierarchy: Option<Hierarchy>,
    /// The tree with the power meters.
    pub sysfs: Sysfs,
    /// The files of the outputs.
    pub outputs: Vec<PathBuf>,
    /// The network namespaces of the packet filter; `None` for those without a path.
    pub namespaces: Vec<Option<PathBuf>>,
    /// The configuration file, the certificates and keys for the delivery, and the sockets of collectors.
    pub configured: Vec<PathBuf>,
    /// The sockets of container runtimes.
    pub sockets: SocketPaths,
}

/// What the threads for foreign requests may open.
#[derive(Default)]
struct Foreign {
    hierarchy: Option<Hierarchy>,
    outputs: Vec<PathBuf>,
    configured: Vec<PathBuf>,
    sockets: SocketPaths,
}

/// Serves the worker until it closes the channels. The process must have dropped its other privileges.
///
/// # Errors
/// If the worker sends a malformed message.
pub fn serve(mut files: Channel, mut foreign: Channel, places: &Places) -> Result<(), String> {
    [&mut files, &mut foreign].into_iter().for_each(Channel::serve);
    let own = Arc::new(Foreign {
        hierarchy: places.hierarchy.clone(),
        outputs: places.outputs.clone(),
        configured: places.configured.clone(),
        sockets: places.sockets.clone(),
    });
    let started = thread::Builder::new().stack_size(STACK).spawn(|| serve_foreign(foreign, own));
    started.map_err(|error| format!("cannot start a thread: {error}"))?;
    let mut node = Node { sysfs: &places.sysfs, read: None, threads: OnceCell::new() };
    loop {
        let request = match files.receive() {
            Ok((request, _)) => request,
            Err(ChannelError::Closed) => return Ok(()),
            Err(error) => return Err(chain(&error)),
        };
        let reply = read(request, places, &mut node);
        files.reply(&reply).map_err(|error| chain(&error))?;
    }
}

/// Opens these files again on request, until the worker closes the channel. The process must have dropped its other privileges.
pub fn serve_outputs(mut requests: Channel, outputs: Vec<PathBuf>) {
    requests.serve();
    serve_foreign(requests, Arc::new(Foreign { outputs, ..Foreign::default() }));
}

/// The power meters and the kernel's threads of the node.
struct Node<'a> {
    sysfs: &'a Sysfs,
    /// The time of the last reading of the power meters.
    read: Option<Instant>,
    /// The threads for softirqs, once the worker has requested them.
    threads: OnceCell<Vec<ksoftirqd::Thread>>,
}

impl Node<'_> {
    fn read_meters(&mut self) -> Result<sysfs::Meters, String> {
        if self.read.is_some_and(|read| read.elapsed() < READINGS) {
            return Err(format!("the power meters were read less than {READINGS:?} ago"));
        }
        self.read = Some(Instant::now());
        Ok(self.sysfs.meters())
    }

    fn waits(&self) -> Vec<(u32, Duration)> {
        let threads = self.threads.get_or_init(ksoftirqd::threads).iter();
        threads.filter_map(|thread| Some((thread.cpu, thread.wait().ok()?))).collect()
    }
}

/// Executes a request that reads files of the kernel.
fn read(request: FileRequest, places: &Places, node: &mut Node<'_>) -> Reply {
    let hierarchy = places.hierarchy.as_ref();
    match request {
        FileRequest::Namespace(Namespace { process }) => Namespace::reply(netns_of(process)),
        FileRequest::Inode(Inode { index }) => {
            let path = places.namespaces.get(index).and_then(Option::as_ref);
            Inode::reply(path.ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(|path| inode(path)))
        }
        FileRequest::ReadMeters(_) => ReadMeters::reply(node.read_meters()),
        FileRequest::ReadSoftirqThreads(_) => ReadSoftirqThreads::success(node.waits()),
        FileRequest::ReadPartUsages(ReadPartUsages { processes }) => {
            let usage = |process| ProcessUsage::of_relative(process).ok();
            ReadPartUsages::success(processes.into_iter().take(PARTS).map(usage).collect())
        }
        FileRequest::CountAllThreads(_) => CountAllThreads::reply(load::all_threads()),
        request => match hierarchy {
            Some(hierarchy) => read_cgroups(request, hierarchy),
            None => Reply::failed("no cgroups are mounted"),
        },
    }
}

/// Executes a request that reads cgroups.
fn read_cgroups(request: FileRequest, hierarchy: &Hierarchy) -> Reply {
    match request {
        FileRequest::Scan(Scan { cgroups, depth }) => {
            let most = Limits::default();
            let limits = Limits { cgroups: cgroups.min(most.cgroups), depth: depth.min(most.depth) };
            Scan::reply(hierarchy.scan(limits).map(|scan| {
                let cgroups = scan.cgroups.into_iter().map(|cgroup| (cgroup.id.0, cgroup.path.as_bytes().to_vec()));
                (cgroups.collect(), scan.beyond, scan.unreadable)
            }))
        }
        FileRequest::Held(Held { cgroups }) => Held::success(each(cgroups, |id, path| hierarchy.holds(id, path))),
        FileRequest::Usages(Usages { cgroups }) => Usages::success(each(cgroups, |id, path| hierarchy.usage(id, path))),
        FileRequest::CountThreads(CountThreads { cgroups }) => {
            CountThreads::success(each(cgroups, |id, path| hierarchy.threads(id, path)))
        }
        FileRequest::RootThreads(_) => RootThreads::reply(hierarchy.root_threads()),
        FileRequest::Throttled(Throttled { cgroups }) => {
            let throttled = |(id, path): (Option<u64>, Vec<u8>)| throttled(hierarchy, id, &CgroupPath::new(&path));
            Throttled::success(cgroups.into_iter().map(throttled).collect())
        }
        FileRequest::FindProcess(FindProcess { path }) => {
            let processes = hierarchy.processes(&CgroupPath::new(&path), 1);
            FindProcess::reply(
                processes.map(|processes| processes.first().map(|process| (*process, netns_of(*process).ok()))),
            )
        }
        FileRequest::InNamespaces(InNamespaces { claims }) => {
            let held = |(path, inode): (Vec<u8>, u32)| hierarchy.is_in_namespace(&CgroupPath::new(&path), inode);
            InNamespaces::success(claims.into_iter().map(held).collect())
        }
        FileRequest::Namespace(_)
        | FileRequest::Inode(_)
        | FileRequest::ReadMeters(_)
        | FileRequest::CountAllThreads(_)
        | FileRequest::ReadSoftirqThreads(_)
        | FileRequest::ReadPartUsages(_) => Reply::failed("this request reads no cgroup"),
    }
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
fn serve_foreign(mut requests: Channel, own: Arc<Foreign>) {
    let Ok(replies) = requests.try_clone() else { return };
    let (replies, under_way) = (Arc::new(Mutex::new(replies)), Arc::new(AtomicUsize::new(0)));
    while let Ok(((number, request), _)) = requests.receive::<(u64, ForeignRequest)>() {
        if under_way.fetch_add(1, Ordering::Relaxed) >= THREADS {
            under_way.fetch_sub(1, Ordering::Relaxed);
            answer(&replies, number, &Answer::Busy, Vec::new());
            continue;
        }
        let (replies_of_thread, count, own) = (Arc::clone(&replies), Arc::clone(&under_way), Arc::clone(&own));
        let started = thread::Builder::new().stack_size(STACK).spawn(move || {
            let (body, descriptors) = execute(request, &own).into_parts();
            count.fetch_sub(1, Ordering::Relaxed);
            answer(&replies_of_thread, number, &Answer::Reply(body), descriptors);
        });
        if let Err(error) = started {
            under_way.fetch_sub(1, Ordering::Relaxed);
            answer(&replies, number, &Answer::Reply(Reply::failed(&error.to_string()).into_parts().0), Vec::new());
        }
    }
}

/// Returns the service of a process that is in the cgroup after the read of its environment.
fn service(hierarchy: Option<&Hierarchy>, process: u32, path: &CgroupPath) -> Result<Service, EnvironError> {
    let service = Service::of_process(process)?;
    let is_there = || hierarchy?.processes(path, MEMBERS).ok().map(|members| members.contains(&process));
    if is_there() == Some(true) { Ok(service) } else { Err(EnvironError::Moved(process)) }
}

fn execute(request: ForeignRequest, own: &Foreign) -> Reply {
    match request {
        ForeignRequest::FindService(FindService { process, path }) => {
            FindService::reply(service(own.hierarchy.as_ref(), process, &CgroupPath::new(&path)))
        }
        ForeignRequest::FindSockets(_) => FindSockets::success(own.sockets.look()),
        ForeignRequest::Exchange(Exchange { path, query }) => Exchange::success(match own.sockets.endpoint(&path) {
            Some(endpoint) => endpoint.exchange(&query, EXCHANGE).map_err(ExchangeError::from),
            None => Err(ExchangeError::from(io::Error::from(Refusal::Path))),
        }),
        ForeignRequest::Open(Open { index, identity }) => Open::reply_with(
            open(own.outputs.get(index), identity)
                .map(|file| (file.is_some(), file.into_iter().map(OwnedFd::from).collect())),
        ),
        ForeignRequest::OpenOrConnect(OpenOrConnect { path }) => {
            let is_configured = own.configured.contains(&path);
            let opened =
                if is_configured { open_or_connect(&path) } else { Err(io::ErrorKind::PermissionDenied.into()) };
            OpenOrConnect::reply_with(opened.map(|descriptor| ((), vec![descriptor])))
        }
    }
}

/// Opens the file of an output; `None` if it is the file with this identity.
fn open(path: Option<&PathBuf>, identity: FileIdentity) -> io::Result<Option<File>> {
    let file = append_regular(path.ok_or(io::ErrorKind::NotFound)?)?;
    Ok((FileIdentity::from_file(&file)? != identity).then_some(file))
}

fn answer(replies: &Mutex<Channel>, number: u64, answer: &Answer, descriptors: Vec<OwnedFd>) {
    let descriptors: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
    // The worker has ended if the send fails.
    drop(replies.lock().unwrap_or_else(PoisonError::into_inner).send(&(number, answer), &descriptors));
}
