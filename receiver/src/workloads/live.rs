//! Workloads as they come and go: told by the kernel's events, checked by scans, completed by what their processes and
//! runtimes say.

use std::{io, time::Duration};

use tokio::time::Instant;
use undercurrent_ebpf::abi::workload::{CgroupEvent, OWNER_LOSSES, OwnerCells, OwnerLoss, change};

use super::{
    Cgroup, CgroupId, CgroupPath, Directory, Hierarchy, Identity, Loss, Stage,
    hierarchy::{Limits, netns_of},
    registry::Registry,
    runtime::Answer,
    young::Young,
};
use crate::{
    kernel::{
        maps::{ByCpu, Words},
        ring::Ring,
    },
    telemetry::{Attributes, UnixNanos},
};

/// How often the tree is walked although the kernel tells of changes.
const CHECK: Duration = Duration::from_secs(60);
/// How often it is walked at most, and where the kernel tells of nothing.
const SCAN: Duration = Duration::from_secs(1);
/// Changes taken at once, so that a storm of them leaves room for ticks.
const BATCH: usize = 256;

/// What is needed to follow workloads.
pub struct Sources {
    /// The table that programs look into.
    pub owners: Words,
    /// What programs could not tell.
    pub losses: ByCpu<OwnerCells>,
    /// Changes of cgroups, where the kernel tells of them.
    pub changes: Option<Ring>,
    /// Where cgroups are.
    pub hierarchy: Hierarchy,
    /// Who knows containers.
    pub directory: Directory,
    /// What is said of this node.
    pub node: Attributes,
    /// Workloads with slots of their own.
    pub limit: u16,
}

/// Workloads, followed.
pub struct Live {
    registry: Registry<Words>,
    losses: ByCpu<OwnerCells>,
    changes: Option<Ring>,
    hierarchy: Hierarchy,
    directory: Directory,
    node: Attributes,
    node_namespace: Option<u64>,
    young: Young,
    /// When the tree is to be walked again.
    scan: Instant,
    /// Changes lost, as of the last scan.
    missed: u64,
    /// Cgroups that the last scan left out.
    left_out: u64,
}

impl Live {
    /// Follows from now on. Every cgroup that is there is known when this returns.
    pub fn start(sources: Sources, now: UnixNanos) -> Self {
        let Sources { owners, losses, changes, hierarchy, directory, node, limit } = sources;
        let mut live = Self {
            registry: Registry::new(owners, limit),
            losses,
            changes,
            hierarchy,
            directory,
            node,
            node_namespace: netns_of(1).or_else(|_| netns_of(std::process::id())).ok(),
            young: Young::default(),
            scan: Instant::now(),
            missed: 0,
            left_out: 0,
        };
        if let Some(inode) = live.node_namespace.and_then(|inode| u32::try_from(inode).ok()) {
            live.registry.node_namespace(inode);
        }
        live.walk(now);
        live.look();
        live
    }

    pub const fn registry(&self) -> &Registry<Words> {
        &self.registry
    }

    pub const fn registry_mut(&mut self) -> &mut Registry<Words> {
        &mut self.registry
    }

    pub const fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    pub const fn node(&self) -> &Attributes {
        &self.node
    }

    /// Waits for the next change, and takes it in with those that came with it. Cancel safe.
    pub async fn changed(&mut self) {
        let due = self.young.due().map_or(self.scan, |due| due.min(self.scan));
        let told = async {
            match &mut self.changes {
                Some(ring) => ring.filled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            filled = told => self.take_in(filled),
            answer = self.directory.answer() => self.answered(&answer),
            () = tokio::time::sleep_until(due) => self.due(),
        }
    }

    /// Takes in what the kernel has told by now.
    pub fn catch_up(&mut self) {
        for _ in 0..BATCH {
            let Some(event) = self.changes.as_mut().and_then(Ring::next::<CgroupEvent>) else { return };
            self.apply(&event);
        }
    }

    fn take_in(&mut self, filled: io::Result<()>) {
        if let Err(error) = filled {
            tracing::warn!("changes of cgroups are no longer told, and looked for every second: {error}");
            self.changes = None;
            return;
        }
        self.catch_up();
        self.look();
    }

    fn apply(&mut self, event: &CgroupEvent) {
        let id = CgroupId(event.id);
        match (event.change, path(event)) {
            (change::REMOVED, _) => self.registry.vanished(id),
            (_, Some(path)) => {
                let new = self.registry.appeared(Cgroup { id, path }, UnixNanos::now());
                self.welcome(new);
            }
            // Its path is longer than an event has room for: a scan finds it.
            (_, None) => self.scan = self.scan.min(Instant::now()),
        }
    }

    fn due(&mut self) {
        if self.scan <= Instant::now() {
            self.walk(UnixNanos::now());
        }
        self.look();
    }

    /// Walks the tree.
    fn walk(&mut self, now: UnixNanos) {
        // What is told of while walking is taken in first the next time; what the walk saw already means nothing then.
        self.missed = self.misses();
        match self.hierarchy.scan(Limits::default()) {
            Ok(scan) => {
                self.left_out = scan.left_out;
                let new = self.registry.reconcile(scan.cgroups, now);
                self.welcome(new);
            }
            Err(error) => tracing::warn!("cannot walk {}: {error}", self.hierarchy.mount_point().display()),
        }
        self.scan = Instant::now() + if self.changes.is_some() { CHECK } else { SCAN };
    }

    /// Changes that the kernel could not tell of, or that made no sense.
    fn misses(&self) -> u64 {
        let mut unheard = 0;
        self.losses.for_each(|_, cells| unheard += cells.unheard);
        unheard + self.registry.counts().surprises
    }

    /// Says what is known of new workloads, and asks for the rest.
    fn welcome(&mut self, new: impl IntoIterator<Item = CgroupId>) {
        for id in new {
            if let Some(workload) = self.registry.get_mut(id) {
                workload.describe(&self.node);
                if let Identity::Container { id, runtime, .. } = &workload.identity {
                    self.directory.ask(id.clone(), *runtime);
                }
                self.young.add(id);
            }
        }
    }

    /// Looks at processes of workloads that are young.
    fn look(&mut self) {
        if self.misses() > self.missed {
            self.scan = self.scan.min(Instant::now());
        }
        for (id, last) in self.young.take(Instant::now()) {
            let Some(workload) = self.registry.get_mut(id).filter(|workload| workload.stage == Stage::Present) else {
                continue;
            };
            let Some(pid) = self.hierarchy.processes(&workload.path, 1).ok().and_then(|pids| pids.first().copied())
            else {
                self.young.again(id, last);
                continue;
            };
            let namespace = own_namespace(pid, self.node_namespace).filter(|_| !workload.is_in_a_pod());
            if workload.asks_process(pid) {
                workload.describe(&self.node);
            }
            if let Some(inode) = namespace {
                self.registry.in_namespace(id, inode);
            }
            // A process may be the runtime's still, and become the workload's.
            self.young.again(id, last);
        }
    }

    fn answered(&mut self, answer: &Answer) {
        let Ok(metadata) = &answer.outcome else {
            tracing::debug!(container = answer.container.0, outcome = ?answer.outcome, "nothing is known of it");
            return;
        };
        for workload in self.registry.iter_mut() {
            if workload.learns(&answer.container, metadata) {
                workload.describe(&self.node);
            }
        }
    }

    /// What could not be told apart, by reason.
    pub fn losses(&self) -> Vec<Loss> {
        let mut lost = [0; OWNER_LOSSES];
        let mut unheard = 0;
        self.losses.for_each(|_, cells| {
            lost.iter_mut().zip(cells.lost).for_each(|(total, count)| *total += count);
            unheard += cells.unheard;
        });
        let counts = self.registry.counts();
        let statistics = self.directory.statistics();
        let of_programs = OwnerLoss::ALL.into_iter().zip(lost).map(|(reason, count)| (name(reason), count));
        of_programs
            .chain([
                ("change_unheard", unheard),
                ("no_room", counts.no_room),
                ("scan_cut", self.left_out),
                ("question_refused", statistics.queue_full),
            ])
            .collect()
    }
}

const fn name(loss: OwnerLoss) -> &'static str {
    match loss {
        OwnerLoss::Unknown => "unknown_cgroup",
        OwnerLoss::NoOwner => "no_owner",
        OwnerLoss::StorageRefused => "storage_refused",
    }
}

/// The path in an event; `None` where it was cut.
fn path(event: &CgroupEvent) -> Option<CgroupPath> {
    let length = usize::try_from(event.length).ok()?;
    let bytes = event.path.get(..length)?.strip_suffix(b"\0")?;
    // A path that fills the event to its end may have been longer.
    (length < event.path.len()).then(|| CgroupPath::new(bytes))
}

/// The network namespace of a process, where it is not the node's.
fn own_namespace(pid: u32, node: Option<u64>) -> Option<u32> {
    let inode = netns_of(pid).ok()?;
    // Where the node's own is unknown, nothing can be told from it.
    if node.is_none_or(|node| node == inode) { None } else { u32::try_from(inode).ok() }
}
