//! Updates of the packet filter: it follows interfaces, namespaces and workloads as they appear and disappear.

use std::{
    collections::{BTreeSet, HashSet},
    io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
use tokio::time::Instant;
use undercurrent_ebpf::abi::filter::{Criterion, FilterKey};

use crate::{
    kernel::{criteria::FilterKeys, filter_map::FilterMap},
    options::{Cgroup, Filter, Namespace},
    reader,
    workloads::{CgroupPath, Files, Slot, Workload, Workloads},
};

/// Interval between updates.
const PERIOD: Duration = Duration::from_secs(1);
/// The network namespace that resolves interface names.
const HERE: &str = "/proc/self/ns/net";

/// Returns the filter keys that the eBPF programs evaluate, on a host with at most `workloads` workloads.
#[must_use]
pub fn filter_keys(filter: &Filter, workloads: u16) -> FilterKeys {
    let slots = if filter.cgroups.is_empty() { 0 } else { usize::from(workloads) + usize::from(Slot::FIRST.0) };
    FilterKeys::default()
        .with(Criterion::Interface, filter.interfaces.len())
        .with(Criterion::Namespace, filter.network_namespaces.len())
        .with(Criterion::Workload, slots)
        .with(Criterion::Process, filter.processes.len())
        .with(Criterion::Port, filter.ports.len())
        .with_queue(filter.min_receive_queue)
}

/// Updates the filter maps of the eBPF programs.
pub struct FilterUpdater {
    filter: Filter,
    choices: FilterMap,
    files: Option<Files>,
    /// Missing objects. Each is logged once.
    missed: HashSet<String>,
    refreshed: Instant,
    /// The number of values that the map has room for.
    room: usize,
    /// The network namespaces of the start, which the reader may open.
    namespaces: Vec<Namespace>,
}

impl FilterUpdater {
    /// Writes all existing objects of the filter to the map of the eBPF programs, on a host with at most `limit` workloads.
    #[must_use]
    pub fn new(filter: Filter, choices: FilterMap, files: Option<Files>, limit: u16, workloads: &Workloads) -> Self {
        let (room, namespaces) = (filter_keys(&filter, limit).most(), filter.network_namespaces.clone());
        let (missed, refreshed) = (HashSet::new(), Instant::now());
        let mut filtering = Self { filter, choices, files, missed, refreshed, room, namespaces };
        filtering.refresh(workloads);
        filtering
    }

    /// Replaces the filter, on a host with at most `limit` workloads. Values change, and the criteria stay: they are constants of the
    /// programs.
    ///
    /// # Errors
    /// The reason why the present filter stays.
    pub fn change(&mut self, filter: Filter, limit: u16, workloads: &Workloads) -> Result<(), String> {
        let (old, new) = (filter_keys(&self.filter, limit), filter_keys(&filter, limit));
        if (old.bits(), old.queue()) != (new.bits(), new.queue()) {
            return Err("other criteria need a restart; the values of present criteria need none".to_owned());
        }
        if new.most() > self.room {
            return Err(format!("the filter has room for {} values until a restart", self.room));
        }
        let opens = |(index, namespace)| {
            !matches!(namespace, &Namespace::Path(_)) || self.namespaces.get(index) == Some(namespace)
        };
        if !filter.network_namespaces.iter().enumerate().all(opens) {
            return Err("network namespaces by path need a restart; those by inode need none".to_owned());
        }
        self.filter = filter;
        self.refresh(workloads);
        Ok(())
    }

    /// Waits for the next update. Never completes if the filter names only fixed values. Cancel safe.
    pub async fn due(&self) {
        if self.filter.interfaces.is_empty()
            && self.filter.network_namespaces.is_empty()
            && self.filter.cgroups.is_empty()
        {
            std::future::pending().await
        }
        tokio::time::sleep_until(self.refreshed + PERIOD).await;
    }

    /// Looks up every object of the filter and updates the map.
    pub fn refresh(&mut self, workloads: &Workloads) {
        self.refreshed = Instant::now();
        let mut choices = BTreeSet::new();
        let filter = std::mem::take(&mut self.filter);
        choices.extend(filter.ports.iter().map(|port| FilterKey::of(Criterion::Port, port.get().into())));
        choices.extend(filter.processes.iter().map(|process| FilterKey::of(Criterion::Process, process.get())));
        choices.extend(self.interfaces(&filter));
        choices.extend(self.namespaces(&filter));
        choices.extend(self.slots(&filter, workloads));
        self.filter = filter;
        if let Err(error) = self.choices.make(choices) {
            tracing::warn!("cannot update the packet filter; it selects fewer packets than configured: {error}");
        }
    }

    fn interfaces(&mut self, filter: &Filter) -> Vec<FilterKey> {
        if filter.interfaces.is_empty() {
            return Vec::new();
        }
        let own = reader::inode(Path::new(HERE)).and_then(narrow);
        let namespace = self.found("the own network namespace", own);
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(io::Error::from);
        let (Some(namespace), Some(any)) = (namespace, self.found("a socket", any)) else { return Vec::new() };
        let names = filter.interfaces.iter().filter_map(|name| {
            let index = name_to_index(&any, name.as_str()).map_err(io::Error::from);
            self.found(&format!("interface {}", name.as_str()), index)
        });
        names.map(|index| FilterKey::interface(namespace, index)).collect()
    }

    fn namespaces(&mut self, filter: &Filter) -> Vec<FilterKey> {
        let inodes = filter.network_namespaces.iter().enumerate().filter_map(|(index, namespace)| match namespace {
            Namespace::Inode(inode) => Some(inode.get()),
            Namespace::Path(path) => {
                self.found(&format!("network namespace {path}"), self.inode(index, path.as_path()))
            }
        });
        inodes.map(|inode| FilterKey::of(Criterion::Namespace, inode)).collect()
    }

    /// Returns the inode of the namespace with this index in the filter, and this path.
    fn inode(&self, index: usize, path: &Path) -> io::Result<u32> {
        self.files.as_ref().map_or_else(|| reader::inode(path), |files| files.inode(index)).and_then(narrow)
    }

    fn slots(&mut self, filter: &Filter, workloads: &Workloads) -> Vec<FilterKey> {
        let mut slots = Vec::new();
        for cgroup in &filter.cgroups {
            let before = slots.len();
            let own = workloads.iter().filter(|workload| workload.slot != Slot::OVERFLOW && is_of(workload, cgroup));
            slots.extend(own.map(|workload| FilterKey::of(Criterion::Workload, u32::from(workload.slot.0))));
            let any = if slots.len() > before { Ok(()) } else { Err(io::Error::other("it contains no workload")) };
            self.found(&format!("cgroup {cgroup}"), any);
        }
        slots
    }

    /// Returns the value if the lookup succeeded. Logs the first failure after a success, and the first success after a
    /// failure.
    fn found<T>(&mut self, what: &str, found: io::Result<T>) -> Option<T> {
        match found {
            Ok(found) => {
                if self.missed.remove(what) {
                    tracing::info!("found {what}, which the filter names");
                }
                Some(found)
            }
            Err(error) => {
                if self.missed.insert(what.to_owned()) {
                    tracing::warn!("cannot find {what}, which the filter names; looking again every second: {error}");
                }
                None
            }
        }
    }
}

fn narrow(inode: u64) -> io::Result<u32> {
    u32::try_from(inode).map_err(|_| io::Error::other(format!("inode {inode} is too large for a namespace")))
}

/// Returns true if the workload's cgroup is `cgroup` or a descendant of it.
fn is_of(workload: &Workload, cgroup: &Cgroup) -> bool {
    match cgroup {
        Cgroup::Id(id) => workload.cgroup.0 == *id,
        Cgroup::Path(path) => {
            let above = CgroupPath::new(path.as_path().as_os_str().as_bytes());
            workload.path.ancestor(above.names().count()) == above
        }
    }
}
