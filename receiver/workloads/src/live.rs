//! Follows the workloads of the node: kernel events report changes of cgroups, scans verify them, and processes and
//! runtimes supply metadata.

use std::{collections::HashSet, io, time::Duration};

use tokio::time::Instant;
use undercurrent_ebpf::abi::workload::{CgroupEvent, OWNER_LOSSES, OwnerCells, OwnerLoss, change};

use super::{
    CGROUPS, Cgroup, CgroupId, CgroupPath, Directory, Files, Identity, LOSSES, Limits, Loss, SOCKETS, Service, Stage,
    Workload,
    recent::RecentCgroups,
    registry::Registry,
    runtime::{Lookup, LookupResult, Unknown},
    services::Services,
    status::SOCKET_CGROUP,
};
use crate::{
    cgroup::Ownership,
    kernel::{Kernel, KernelError, epoch::Epoch, hooks, maps::ByCpu, ring::Ring},
    telemetry::{Attributes, UnixNanos},
};

/// The interval of scans while kernel events are available.
const CHECK: Duration = Duration::from_secs(60);
/// The minimum interval of scans, and the interval without kernel events.
const SCAN: Duration = Duration::from_secs(1);
/// The maximum number of events that are processed at once, so that a burst does not delay ticks.
const BATCH: usize = 256;

/// The sources of changes to workloads.
pub struct Live {
    /// The ring of cgroup events; `None` if the kernel does not deliver them.
    changes: Option<Ring>,
    files: Files,
    services: Services,
    directory: Directory,
    /// Losses that the eBPF programs count.
    losses: ByCpu<OwnerCells>,
    possible_losses: Vec<&'static str>,
    epoch: Epoch,
    node: Attributes,
    node_namespace: Option<u64>,
    recent: RecentCgroups,
    /// The time of the next scan.
    scan: Instant,
    /// The earliest time of the next scan.
    earliest_scan: Instant,
    /// The time of the next retry of failed lookups.
    revisit: Instant,
    /// The number of lost changes at the last scan, plus the inconsistencies of that scan.
    losses_at_scan: u64,
    /// The number of cgroups that the last scan left out.
    left_out: u64,
}

impl Live {
    /// Opens the maps of the eBPF programs. Needs a tokio runtime.
    ///
    /// # Errors
    /// If a map cannot be opened.
    pub fn new(kernel: &mut Kernel, files: Files, directory: Directory, node: Attributes) -> Result<Self, KernelError> {
        let has_events = kernel.serves(&hooks::CGROUP_CHANGE);
        Ok(Self {
            changes: if has_events { Some(kernel.ring(CGROUPS.name)?) } else { None },
            node_namespace: files.namespace(1).or_else(|_| files.namespace(std::process::id())).ok(),
            files,
            services: Services::default(),
            directory,
            losses: kernel.by_cpu(&LOSSES)?,
            possible_losses: super::loss_reasons(Some(kernel)),
            epoch: kernel.epoch(&SOCKETS)?,
            node,
            recent: RecentCgroups::default(),
            scan: Instant::now(),
            earliest_scan: Instant::now(),
            revisit: Instant::now() + CHECK,
            losses_at_scan: 0,
            left_out: 0,
        })
    }

    /// Scans all existing cgroups.
    pub fn scan_all(&mut self, registry: &mut Registry) {
        if let Some(inode) = self.node_namespace.and_then(|inode| u32::try_from(inode).ok()) {
            registry.node_namespace(inode);
        }
        self.walk(registry);
        self.read_processes(registry);
    }

    /// Waits for the next change, and applies it together with all pending changes. Cancel safe.
    pub async fn changed(&mut self, registry: &mut Registry) {
        let due = self.recent.due().map_or(self.scan, |due| due.min(self.scan));
        let events = async {
            match &mut self.changes {
                Some(ring) => ring.filled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            filled = events => self.handle_events(filled, registry),
            answer = self.directory.next_result() => self.apply_result(&answer, registry),
            (workload, service) = self.services.next(&self.files) => self.serves(workload, service, registry),
            () = tokio::time::sleep_until(due) => self.due(registry),
        }
    }

    /// Applies pending kernel events, and replaces a reader that does not respond.
    pub fn catch_up(&mut self, registry: &mut Registry) {
        self.files.maintain();
        let mut must_renew = None;
        for _ in 0..BATCH {
            let Some(event) = self.changes.as_mut().and_then(Ring::take::<CgroupEvent>) else { break };
            must_renew = Some(self.apply(&event, registry) | must_renew.unwrap_or(false));
        }
        if let Some(must_renew) = must_renew {
            if must_renew {
                self.renew();
            }
            self.read_processes(registry);
        }
    }

    /// Invalidates the slots that the eBPF programs have cached.
    pub fn renew(&mut self) {
        if let Err(error) = self.epoch.advance() {
            tracing::warn!(
                "cannot invalidate cached slots; eBPF programs may attribute events to an old workload: {error}"
            );
        }
    }

    fn handle_events(&mut self, filled: io::Result<()>, registry: &mut Registry) {
        if let Err(error) = filled {
            tracing::warn!("cgroup event ring failed; rescanning every second: {error}");
            self.changes = None;
            return;
        }
        self.catch_up(registry);
    }

    /// Applies an event. Returns true if cached slots must be invalidated.
    fn apply(&mut self, event: &CgroupEvent, registry: &mut Registry) -> bool {
        let id = CgroupId(event.id);
        match (event.change, path(event)) {
            // Cached slots of the cgroup remain valid until the next snapshot invalidates them.
            (change::REMOVED, _) => {
                registry.vanished(id);
                registry.ended(id, event.cpu_time);
                return false;
            }
            (_, Some(path)) => {
                if let Some(new) = registry.appeared(Cgroup { id, path }, UnixNanos::now()) {
                    self.describe_new(new, registry);
                    self.recent.born(new);
                }
            }
            // The path exceeds the event's buffer: a scan finds the cgroup.
            (_, None) => self.schedule_scan(),
        }
        true
    }

    fn due(&mut self, registry: &mut Registry) {
        if self.scan <= Instant::now() {
            self.walk(registry);
        }
        self.read_processes(registry);
    }

    /// Scans the cgroup tree.
    fn walk(&mut self, registry: &mut Registry) {
        // Events during the scan are applied later. They have no effect on cgroups that the scan already found.
        let unheard = self.unheard();
        match self.files.scan(Limits::default()) {
            Ok(scan) => {
                self.left_out = (scan.beyond + scan.unreadable) as u64;
                let is_complete = self.left_out == 0;
                let gone = if is_complete { HashSet::new() } else { self.gone(&registry.missing(&scan.cgroups)) };
                let has_vanished = |id, _: &CgroupPath| is_complete || gone.contains(&id);
                let new = registry.reconcile(scan.cgroups, has_vanished, UnixNanos::now());
                for id in new {
                    self.describe_new(id, registry);
                    self.recent.found(id);
                }
                self.renew();
            }
            Err(error) => tracing::warn!("cannot walk {}: {error}", self.files.hierarchy().mount_point().display()),
        }
        registry.settle_claims(&self.node);
        // An immediate second scan would not resolve the inconsistencies of this scan.
        self.losses_at_scan = unheard + registry.counts().surprises;
        self.earliest_scan = Instant::now() + SCAN;
        self.scan = Instant::now() + if self.changes.is_some() { CHECK } else { SCAN };
        if self.revisit <= Instant::now() {
            self.revisit(registry);
            self.revisit = Instant::now() + CHECK;
        }
    }

    /// Returns the cgroups that have been removed. Returns none while the reader does not respond.
    fn gone(&self, missing: &[(CgroupId, CgroupPath)]) -> HashSet<CgroupId> {
        let Ok(held) = self.files.held(missing) else { return HashSet::new() };
        missing.iter().zip(held).filter(|(_, held)| !held).map(|((id, _), _)| *id).collect()
    }

    /// Schedules a scan at the earliest permitted time.
    fn schedule_scan(&mut self) {
        self.scan = self.scan.min(self.earliest_scan);
    }

    /// Returns the number of changes that the kernel could not report.
    fn unheard(&self) -> u64 {
        let mut unheard = 0;
        self.losses.for_each(|_, cells| unheard += cells.unheard);
        unheard
    }

    /// Describes a new workload, and submits a lookup of its container.
    fn describe_new(&mut self, new: CgroupId, registry: &mut Registry) {
        registry.settle_claims(&self.node);
        let Some(workload) = registry.get_mut(new) else { return };
        workload.describe(&self.node);
        if let Some(lookup) = lookup(workload)
            && !self.directory.submit(lookup.clone())
        {
            workload.record_failed_lookup(&lookup, true);
        }
    }

    /// Retries failed lookups, and searches again for the network namespaces of workloads: an earlier claimant of a
    /// namespace may have gone.
    fn revisit(&mut self, registry: &mut Registry) {
        let claims: Vec<_> = registry.claims().map(|(workload, inode)| (&workload.path, inode)).collect();
        let held = self.files.in_namespaces(&claims).into_iter();
        let over = registry.claims().zip(held).filter(|(_, held)| !held);
        let over: Vec<(CgroupId, u32)> = over.map(|((workload, inode), _)| (workload.cgroup, inode)).collect();
        for (claimant, inode) in over {
            registry.release_namespace(claimant, inode);
            self.renew();
        }
        for workload in registry.iter().filter(|workload| workload.stage == Stage::Present) {
            if let Some(lookup) = lookup(workload)
                && workload.needs_lookup()
            {
                self.directory.submit(lookup);
            }
            if workload.namespace.is_none() {
                self.recent.once(workload.cgroup);
            }
        }
    }

    /// Reads the processes of recent workloads.
    fn read_processes(&mut self, registry: &mut Registry) {
        self.files.maintain();
        if self.unheard() + registry.counts().surprises > self.losses_at_scan {
            self.schedule_scan();
        }
        for (id, looks) in self.recent.take(Instant::now()) {
            let Some(workload) = registry.get_mut(id).filter(|workload| workload.stage == Stage::Present) else {
                continue;
            };
            // The process may still be the runtime's, and execute the workload's program later.
            self.recent.again(id, looks);
            let Some((process, inode)) = self.files.process(&workload.path).ok().flatten() else { continue };
            self.services.read(id, &workload.path, process, &self.files);
            let inode = inode.filter(|_| !workload.is_in_a_pod());
            let namespace = inode.and_then(|inode| own_namespace(inode, self.node_namespace));
            if let Some(inode) = namespace {
                self.check_claim(inode, id, registry);
                registry.in_namespace(id, inode);
                self.renew();
            }
        }
    }

    /// Releases another workload's claim to a network namespace if none of its processes is in the namespace. The
    /// kernel reuses the inode numbers of namespaces.
    fn check_claim(&self, inode: u32, finder: CgroupId, registry: &mut Registry) {
        let Some(claimant) = registry.claimant(inode).filter(|workload| workload.cgroup != finder) else { return };
        if self.files.in_namespaces(&[(&claimant.path, inode)]) == [false] {
            let claimant = claimant.cgroup;
            registry.release_namespace(claimant, inode);
        }
    }

    /// Stores the service that a process of a workload declares.
    fn serves(&self, workload: CgroupId, service: Service, registry: &mut Registry) {
        if let Some(workload) = registry.get_mut(workload)
            && workload.serves(service)
        {
            workload.describe(&self.node);
        }
    }

    fn apply_result(&mut self, answer: &LookupResult, registry: &mut Registry) {
        let LookupResult { lookup, outcome } = answer;
        let metadata = match outcome {
            Ok(metadata) => metadata,
            Err(unknown) => {
                tracing::debug!(container = lookup.container.0, "container lookup failed: {unknown}");
                let again = *unknown != Unknown::NotFound;
                registry.iter_mut().for_each(|workload| workload.record_failed_lookup(lookup, again));
                return;
            }
        };
        registry.learn(lookup, metadata, &self.node);
    }

    /// Returns the losses of attribution, by reason.
    pub fn losses(&self, registry: &Registry) -> Vec<Loss> {
        let mut lost = [0; OWNER_LOSSES];
        self.losses.for_each(|_, cells| {
            lost.iter_mut().zip(cells.lost).for_each(|(total, count)| *total += count);
        });
        let counts = registry.counts();
        let of_programs = OwnerLoss::ALL.into_iter().zip(lost).map(|(reason, count)| (name(reason), count));
        let others = [
            self.unheard(),
            counts.table_full,
            counts.cgroup_quota,
            counts.slot_quota,
            self.left_out,
            self.files.replaced(),
            self.directory.statistics().queue_full,
            self.services.timeouts(),
        ];
        let all = of_programs.chain(OTHERS.into_iter().zip(others));
        all.filter(|(reason, count)| *count > 0 || self.possible_losses.contains(reason)).collect()
    }
}

const NO_OWNER: &str = "no_owner";
const STORAGE_REFUSED: &str = "storage_refused";
const CGROUP_EVENT_LOST: &str = "cgroup_event_lost";

/// The reasons of losses that user space counts.
const OTHERS: [&str; 8] = [
    CGROUP_EVENT_LOST,
    "table_full",
    "cgroup_quota",
    "slot_quota",
    "scan_cut",
    "reader_replaced",
    "lookup_queue_full",
    "environment_timeout",
];

/// The reasons of all losses.
pub fn reasons() -> Vec<&'static str> {
    OwnerLoss::ALL.map(name).into_iter().chain(OTHERS).collect()
}

/// Returns true if a loss can occur with attached hooks.
pub fn can_occur(reason: &str, kernel: &Kernel) -> bool {
    match reason {
        NO_OWNER => kernel.host().ownership() != Some(Ownership::Unified) || kernel.lacks(SOCKET_CGROUP),
        STORAGE_REFUSED => kernel.stores_readers(),
        CGROUP_EVENT_LOST => kernel.serves(&hooks::CGROUP_CHANGE),
        _ => true,
    }
}

/// Returns the lookup of a workload's container; `None` in the overflow, which keeps no names.
fn lookup(workload: &Workload) -> Option<Lookup> {
    match &workload.identity {
        Identity::Container { id, runtime, pod } if !workload.is_folded() => {
            Some(Lookup::new(id.clone(), *runtime, pod.clone(), &workload.path))
        }
        _ => None,
    }
}

const fn name(loss: OwnerLoss) -> &'static str {
    match loss {
        OwnerLoss::UnknownOwner => "unknown_owner",
        OwnerLoss::NoOwner => NO_OWNER,
        OwnerLoss::StorageRefused => STORAGE_REFUSED,
    }
}

/// Returns the path in an event; `None` if the path was truncated.
fn path(event: &CgroupEvent) -> Option<CgroupPath> {
    let length = usize::try_from(event.length).ok()?;
    let bytes = event.path.get(..length)?.strip_suffix(b"\0")?;
    // A path that fills the buffer may be truncated.
    (length < event.path.len()).then(|| CgroupPath::new(bytes))
}

/// Returns a network namespace by its inode number, unless it is the namespace of the node.
fn own_namespace(inode: u64, node: Option<u64>) -> Option<u32> {
    // If the node's namespace is unknown, no namespace can be attributed.
    if node.is_none_or(|node| node == inode) { None } else { u32::try_from(inode).ok() }
}
