//! Workloads as they come and go: told by the kernel's events, checked by scans, completed by what their processes and
//! runtimes say.

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
};
use crate::{
    kernel::{Kernel, KernelError, epoch::Epoch, hooks, maps::ByCpu, ring::Ring},
    telemetry::{Attributes, UnixNanos},
};

/// How often the tree is walked although the kernel tells of changes.
const CHECK: Duration = Duration::from_secs(60);
/// How often it is walked at most, and where the kernel tells of nothing.
const SCAN: Duration = Duration::from_secs(1);
/// Changes taken at once, so that a storm of them leaves room for ticks.
const BATCH: usize = 256;

/// What changes workloads.
pub struct Live {
    /// Changes of cgroups, where the kernel tells of them.
    changes: Option<Ring>,
    files: Files,
    services: Services,
    directory: Directory,
    /// What programs could not tell.
    losses: ByCpu<OwnerCells>,
    epoch: Epoch,
    node: Attributes,
    node_namespace: Option<u64>,
    recent: RecentCgroups,
    /// When the tree is to be walked again.
    scan: Instant,
    /// The earliest time for that, whatever happens.
    rested: Instant,
    /// When what was not found out is to be asked for again.
    revisit: Instant,
    /// Changes lost by the time of the last scan, but for what it could not make sense of itself.
    missed: u64,
    /// Cgroups that the last scan left out.
    left_out: u64,
}

impl Live {
    /// Needs a tokio runtime.
    ///
    /// # Errors
    /// Where the programs' tables cannot be had.
    pub fn new(kernel: &mut Kernel, files: Files, directory: Directory, node: Attributes) -> Result<Self, KernelError> {
        let told = kernel.serves(&hooks::CGROUP_CHANGE);
        Ok(Self {
            changes: if told { Some(kernel.ring(CGROUPS.name)?) } else { None },
            node_namespace: files.namespace(1).or_else(|_| files.namespace(std::process::id())).ok(),
            files,
            services: Services::default(),
            directory,
            losses: kernel.by_cpu(&LOSSES)?,
            epoch: kernel.epoch(&SOCKETS)?,
            node,
            recent: RecentCgroups::default(),
            scan: Instant::now(),
            rested: Instant::now(),
            revisit: Instant::now() + CHECK,
            missed: 0,
            left_out: 0,
        })
    }

    /// Finds every cgroup that is there.
    pub fn begin(&mut self, registry: &mut Registry) {
        if let Some(inode) = self.node_namespace.and_then(|inode| u32::try_from(inode).ok()) {
            registry.node_namespace(inode);
        }
        self.walk(registry);
        self.look(registry);
    }

    /// Waits for the next change, and takes it in with those that came with it. Cancel safe.
    pub async fn changed(&mut self, registry: &mut Registry) {
        let due = self.recent.due().map_or(self.scan, |due| due.min(self.scan));
        let told = async {
            match &mut self.changes {
                Some(ring) => ring.filled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            filled = told => self.told(filled, registry),
            answer = self.directory.answer() => self.answered(&answer, registry),
            (workload, service) = self.services.next(&self.files) => self.serves(workload, service, registry),
            () = tokio::time::sleep_until(due) => self.due(registry),
        }
    }

    /// Takes in what the kernel has told by now, and replaces a reader that does not respond.
    pub fn catch_up(&mut self, registry: &mut Registry) {
        self.files.maintain();
        let mut any = false;
        for _ in 0..BATCH {
            let Some(event) = self.changes.as_mut().and_then(Ring::take::<CgroupEvent>) else { break };
            self.apply(&event, registry);
            any = true;
        }
        if any {
            self.look(registry);
        }
    }

    /// Has programs look up again what they have cached, so that nothing wrong lasts.
    pub fn renew(&mut self) {
        if let Err(error) = self.epoch.advance() {
            tracing::warn!("programs go on with the slots that they have cached: {error}");
        }
    }

    fn told(&mut self, filled: io::Result<()>, registry: &mut Registry) {
        if let Err(error) = filled {
            tracing::warn!("changes of cgroups are no longer told, and looked for every second: {error}");
            self.changes = None;
            return;
        }
        self.catch_up(registry);
    }

    fn apply(&mut self, event: &CgroupEvent, registry: &mut Registry) {
        let id = CgroupId(event.id);
        match (event.change, path(event)) {
            // Whatever is cached of it is still its own, and dropped with the next snapshot.
            (change::REMOVED, _) => return registry.vanished(id),
            (_, Some(path)) => {
                if let Some(new) = registry.appeared(Cgroup { id, path }, UnixNanos::now()) {
                    self.welcome(new, registry);
                    self.recent.born(new);
                }
            }
            // Its path is longer than an event has room for: a scan finds it.
            (_, None) => self.hasten(),
        }
        self.renew();
    }

    fn due(&mut self, registry: &mut Registry) {
        if self.scan <= Instant::now() {
            self.walk(registry);
        }
        self.look(registry);
    }

    /// Walks the tree.
    fn walk(&mut self, registry: &mut Registry) {
        // What is told of while walking is taken in later, and means nothing then where the walk saw it.
        let unheard = self.unheard();
        match self.files.scan(Limits::default()) {
            Ok(scan) => {
                self.left_out = (scan.beyond + scan.unreadable) as u64;
                let is_complete = self.left_out == 0;
                let gone = if is_complete { HashSet::new() } else { self.gone(&registry.missing(&scan.cgroups)) };
                let has_vanished = |id, _: &CgroupPath| is_complete || gone.contains(&id);
                let new = registry.reconcile(scan.cgroups, has_vanished, UnixNanos::now());
                for id in new {
                    self.welcome(id, registry);
                    self.recent.found(id);
                }
                self.renew();
            }
            Err(error) => tracing::warn!("cannot walk {}: {error}", self.files.hierarchy().mount_point().display()),
        }
        // What the walk itself could not make sense of, another one at once would not either.
        self.missed = unheard + registry.counts().surprises;
        self.rested = Instant::now() + SCAN;
        self.scan = Instant::now() + if self.changes.is_some() { CHECK } else { SCAN };
        if self.revisit <= Instant::now() {
            self.revisit(registry);
            self.revisit = Instant::now() + CHECK;
        }
    }

    /// Which of these cgroups are gone. While the reader does not respond, none is.
    fn gone(&self, missing: &[(CgroupId, CgroupPath)]) -> HashSet<CgroupId> {
        let Ok(held) = self.files.held(missing) else { return HashSet::new() };
        missing.iter().zip(held).filter(|(_, held)| !held).map(|((id, _), _)| *id).collect()
    }

    /// Walks the tree as soon as it may be walked again.
    fn hasten(&mut self) {
        self.scan = self.scan.min(self.rested);
    }

    /// Changes that the kernel could not tell of.
    fn unheard(&self) -> u64 {
        let mut unheard = 0;
        self.losses.for_each(|_, cells| unheard += cells.unheard);
        unheard
    }

    /// Says what is known of a new workload, and asks for the rest.
    fn welcome(&mut self, new: CgroupId, registry: &mut Registry) {
        let Some(workload) = registry.get_mut(new) else { return };
        workload.describe(&self.node);
        if let Some(question) = question(workload)
            && !self.directory.ask(question.clone())
        {
            workload.goes_without(&question, true);
        }
    }

    /// Asks again about containers that nobody could answer for, by now perhaps, and looks again for the namespaces of
    /// workloads: one may have been another's, which has gone.
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
            if let Some(question) = question(workload)
                && workload.answer_pending()
            {
                self.directory.ask(question);
            }
            if workload.namespace.is_none() {
                self.recent.once(workload.cgroup);
            }
        }
    }

    /// Looks at the processes of workloads that are young.
    fn look(&mut self, registry: &mut Registry) {
        if self.unheard() + registry.counts().surprises > self.missed {
            self.hasten();
        }
        for (id, looks) in self.recent.take(Instant::now()) {
            let Some(workload) = registry.get_mut(id).filter(|workload| workload.stage == Stage::Present) else {
                continue;
            };
            // A process may be the runtime's still, and become the workload's.
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

    /// Releases another workload's claim to a network namespace if none of its processes is in the namespace. The kernel reuses
    /// the inode of a namespace that has ended.
    fn check_claim(&self, inode: u32, finder: CgroupId, registry: &mut Registry) {
        let Some(claimant) = registry.claimant(inode).filter(|workload| workload.cgroup != finder) else { return };
        if self.files.in_namespaces(&[(&claimant.path, inode)]) == [false] {
            let claimant = claimant.cgroup;
            registry.release_namespace(claimant, inode);
        }
    }

    /// Takes in the service that a process of a workload names.
    fn serves(&self, workload: CgroupId, service: Service, registry: &mut Registry) {
        if let Some(workload) = registry.get_mut(workload)
            && workload.serves(service)
        {
            workload.describe(&self.node);
        }
    }

    fn answered(&mut self, answer: &LookupResult, registry: &mut Registry) {
        let LookupResult { question, outcome } = answer;
        let metadata = match outcome {
            Ok(metadata) => metadata,
            Err(unknown) => {
                tracing::debug!(container = question.container.0, "nothing more is known of a container: {unknown}");
                let again = *unknown != Unknown::NotFound;
                registry.iter_mut().for_each(|workload| workload.goes_without(question, again));
                return;
            }
        };
        registry.learn(question, metadata, &self.node);
    }

    /// What could not be told apart, by reason.
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
        ];
        of_programs.chain(OTHERS.into_iter().zip(others)).collect()
    }
}

/// The reasons of losses that user space counts.
const OTHERS: [&str; 7] = [
    "cgroup_event_lost",
    "table_full",
    "cgroup_quota",
    "slot_quota",
    "scan_cut",
    "reader_replaced",
    "lookup_queue_full",
];

/// The reasons of all losses.
pub fn reasons() -> Vec<&'static str> {
    OwnerLoss::ALL.map(name).into_iter().chain(OTHERS).collect()
}

/// The container to ask about: none for a workload in the overflow, whose names nobody sees.
fn question(workload: &Workload) -> Option<Lookup> {
    match &workload.identity {
        Identity::Container { id, runtime, pod } if !workload.is_folded() => {
            Some(Lookup::new(id.clone(), *runtime, pod.clone(), &workload.path))
        }
        _ => None,
    }
}

const fn name(loss: OwnerLoss) -> &'static str {
    match loss {
        OwnerLoss::Unknown => "unknown_owner",
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

/// A network namespace by its inode, if it is not the node's.
fn own_namespace(inode: u64, node: Option<u64>) -> Option<u32> {
    // Where the node's own is unknown, nothing can be told from it.
    if node.is_none_or(|node| node == inode) { None } else { u32::try_from(inode).ok() }
}
