//! Workloads and their slots, from the creation of the cgroup until the last totals are delivered.

mod claims;
mod namespaces;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use super::{
    Cgroup, CgroupId, CgroupPath, Identity, Metadata, Origin, Slot, Stage, Workload, identify,
    runtime::Lookup,
    slots::Slots,
    table::{CAPACITY, NoRoom, Owners, Table},
    workload::Instance,
};
use crate::{
    cgroup::{Quotas, Subtree},
    telemetry::{Attributes, Resource, UnixNanos},
};

/// The known cgroups and their workloads.
pub struct Registry {
    owners: Owners,
    /// The use of the table by cgroups and namespaces, by subtree.
    entry_quotas: Quotas,
    slots: Slots,
    /// The use of slots, by subtree.
    slot_quotas: Quotas,
    /// The resource that all workloads in the overflow share.
    overflow: Arc<Resource>,
    /// Every existing cgroup, with its path and its workload.
    cgroups: HashMap<CgroupId, Member>,
    /// The own cgroup of each workload, existing or removed. A new cgroup at the path of a removed workload resumes it:
    /// only the owner of the parent cgroup can create it.
    by_path: HashMap<CgroupPath, CgroupId>,
    /// Workloads by own cgroup. A removed workload stays until its slot is free.
    workloads: BTreeMap<CgroupId, Workload>,
    by_slot: HashMap<Slot, CgroupId>,
    /// The workload of each instance.
    by_instance: HashMap<Instance, CgroupId>,
    /// The workload that claims each network namespace.
    by_namespace: HashMap<u32, CgroupId>,
    counts: Counts,
}

/// An existing cgroup.
struct Member {
    path: CgroupPath,
    /// The own cgroup of its workload; `None` for cgroups of the node.
    workload: Option<CgroupId>,
    /// The subtree of its quota.
    subtree: Subtree,
}

/// Failures of the registry since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cgroups and namespaces that were rejected because the table is full.
    pub table_full: u64,
    /// Cgroups and namespaces beyond the quota of their subtree.
    pub cgroup_quota: u64,
    /// Workloads in the overflow because their subtree has used its quota of slots.
    pub slot_quota: u64,
    /// Workloads that were added to the overflow.
    pub folded: u64,
    /// Changes that were inconsistent with the known cgroups. Each requires a scan.
    pub surprises: u64,
}

impl Default for Registry {
    /// Creates an empty registry without a table for eBPF programs.
    fn default() -> Self {
        Self::new(Box::new(()), 0, Arc::new(Resource { attributes: Attributes::new() }))
    }
}

impl Registry {
    /// Creates an empty registry. `limit` workloads get separate slots. All others share one slot and the resource
    /// `overflow`.
    pub fn new(table: Box<dyn Table>, limit: u16, overflow: Arc<Resource>) -> Self {
        Self {
            owners: Owners::new(table),
            entry_quotas: Quotas::new(CAPACITY),
            slots: Slots::new(limit),
            slot_quotas: Quotas::new(usize::from(limit)),
            overflow,
            cgroups: HashMap::new(),
            by_path: HashMap::new(),
            workloads: BTreeMap::new(),
            by_slot: HashMap::new(),
            by_instance: HashMap::new(),
            by_namespace: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the failures since the start.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the resource that all workloads in the overflow share.
    pub fn overflow(&self) -> Arc<Resource> {
        Arc::clone(&self.overflow)
    }

    /// Returns the most recent existing cgroup, which has the highest id: the kernel assigns increasing ids.
    pub fn newest(&self) -> Option<CgroupId> {
        self.cgroups.keys().max().copied()
    }

    /// Returns every workload, including removed workloads whose slot is not yet free.
    pub fn iter(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.values()
    }

    /// Returns every workload, for updates.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Workload> {
        self.workloads.values_mut()
    }

    /// Returns the workload with a slot, except the overflow.
    pub fn by_slot(&self, slot: Slot) -> Option<&Workload> {
        self.workloads.get(self.by_slot.get(&slot)?)
    }

    /// Returns the workload with this own cgroup.
    #[cfg(test)]
    pub fn get(&self, id: CgroupId) -> Option<&Workload> {
        self.workloads.get(&id)
    }

    /// Returns the workload with this own cgroup, for updates.
    pub fn get_mut(&mut self, id: CgroupId) -> Option<&mut Workload> {
        self.workloads.get_mut(&id)
    }

    /// Adds an existing cgroup. Returns its id if it is the own cgroup of a new workload.
    pub fn appeared(&mut self, cgroup: Cgroup, now: UnixNanos) -> Option<CgroupId> {
        let Cgroup { id, path } = cgroup;
        if let Some(known) = self.cgroups.get(&id) {
            if known.path == path {
                return None;
            }
            self.vanished(id);
        }
        let subtree = Subtree::containing(&path);
        if !self.has_room(&subtree) {
            return None;
        }
        // The kernel does not reuse ids soon. If an id repeats, its previous slot must be free first.
        if self.workloads.contains_key(&id) {
            self.counts.surprises += 1;
            return None;
        }
        match identify(&path) {
            None => {
                self.join(id, path, subtree, None);
                None
            }
            Some((identity, depth)) if path.names().count() == depth => {
                self.admit(id, path, subtree, identity, now);
                Some(id)
            }
            Some((_, depth)) => {
                match self.present_at(&path.ancestor(depth)) {
                    Some(workload) => self.join(id, path, subtree, Some(workload)),
                    // The event of the workload's own cgroup was lost: a scan finds both.
                    None => self.counts.surprises += 1,
                }
                None
            }
        }
    }

    /// Returns true if the table and the quota of a subtree have room for a cgroup. Otherwise counts a rejection.
    /// Events in a rejected cgroup count with the node.
    fn has_room(&mut self, subtree: &Subtree) -> bool {
        let count = if self.cgroups.len() >= CAPACITY {
            &mut self.counts.table_full
        } else if !self.entry_quotas.admits(subtree) {
            &mut self.counts.cgroup_quota
        } else {
            return true;
        };
        *count += 1;
        false
    }

    /// Returns the own cgroup of the existing workload at a path.
    fn present_at(&self, path: &CgroupPath) -> Option<CgroupId> {
        self.by_path.get(path).copied().filter(|id| self.cgroups.contains_key(id))
    }

    /// Admits the workload of a cgroup. Resumes the previous workload of the same path if that has not expired: both
    /// have one resource, and so one series.
    fn admit(&mut self, id: CgroupId, path: CgroupPath, subtree: Subtree, identity: Identity, now: UnixNanos) {
        // The previous cgroup at this path was removed, and the event was lost.
        if let Some(before) = self.present_at(&path) {
            self.vanished(before);
        }
        if let Some(mut workload) = self.by_path.get(&path).and_then(|before| self.workloads.remove(before)) {
            workload.resume(id);
            self.enter(id, path, subtree, workload);
            return;
        }
        let slot = self.take_slot(&subtree);
        let mut workload = Workload::new(slot, identity, id, path.clone(), now);
        if self.by_instance.contains_key(&workload.instance) {
            workload.use_path_as_instance();
        }
        if slot == Slot::OVERFLOW {
            workload.resource = self.overflow();
        }
        self.enter(id, path, subtree, workload);
    }

    /// Takes a slot for a new workload: the overflow's if no slot is free, or if the quota of the subtree is used.
    fn take_slot(&mut self, subtree: &Subtree) -> Slot {
        let is_admitted = self.slot_quotas.admits(subtree);
        match is_admitted.then(|| self.slots.take()).flatten() {
            Some(slot) => {
                self.slot_quotas.take(subtree);
                slot
            }
            None => {
                self.counts.slot_quota += u64::from(!is_admitted);
                self.counts.folded += 1;
                Slot::OVERFLOW
            }
        }
    }

    /// Adds a workload that is present to all indexes.
    fn enter(&mut self, id: CgroupId, path: CgroupPath, subtree: Subtree, workload: Workload) {
        self.by_instance.insert(workload.instance.clone(), id);
        if workload.slot != Slot::OVERFLOW {
            self.by_slot.insert(workload.slot, id);
        }
        self.by_path.insert(path.clone(), id);
        self.workloads.insert(id, workload);
        self.join(id, path, subtree, Some(id));
    }

    /// Removes a workload from all indexes, and frees its slot.
    fn forget(&mut self, id: CgroupId) {
        let Some(workload) = self.workloads.remove(&id) else { return };
        self.by_instance.remove(&workload.instance);
        self.by_path.remove(&workload.path);
        if workload.slot != Slot::OVERFLOW {
            self.by_slot.remove(&workload.slot);
            self.slots.give_back(workload.slot);
            self.slot_quotas.give_back(&Subtree::containing(&workload.path));
        }
    }

    fn join(&mut self, id: CgroupId, path: CgroupPath, subtree: Subtree, workload: Option<CgroupId>) {
        let slot = workload.and_then(|own| self.workloads.get(&own)).map_or(Slot::NODE, |workload| workload.slot);
        self.set(id.0, slot);
        self.entry_quotas.take(&subtree);
        self.cgroups.insert(id, Member { path, workload, subtree });
    }

    fn set(&mut self, key: u64, slot: Slot) {
        if let Err(NoRoom::Full | NoRoom::TooLong) = self.owners.set(key, slot) {
            self.counts.table_full += 1;
        }
    }

    /// Removes a cgroup. Later events of its remaining sockets count with the node.
    pub fn vanished(&mut self, id: CgroupId) {
        let Some(member) = self.cgroups.remove(&id) else { return };
        self.owners.remove(id.0);
        self.entry_quotas.give_back(&member.subtree);
        if member.workload != Some(id) {
            return;
        }
        let Some(workload) = self.workloads.get_mut(&id) else { return };
        workload.stage = Stage::Gone;
        let is_folded = workload.slot == Slot::OVERFLOW;
        // The kernel removes children first. Children whose events were lost are removed here.
        let children = self.cgroups.extract_if(|_, member| member.workload == Some(id));
        for (child, member) in children {
            self.owners.remove(child.0);
            self.entry_quotas.give_back(&member.subtree);
        }
        self.release_any(id);
        if is_folded {
            self.forget(id);
        }
    }

    /// Records the CPU time of a removed cgroup and its descendants in nanoseconds; zero if it is unknown.
    pub fn ended(&mut self, id: CgroupId, cpu_time: u64) {
        if let Some(workload) = self.workloads.get_mut(&id).filter(|_| cpu_time > 0) {
            workload.last_cpu_time = Some(Duration::from_nanos(cpu_time));
        }
    }

    /// Distributes the metadata of a container. If a workload of the system has the id, other workloads with that id get no
    /// metadata, and lose earlier metadata.
    pub fn learn(&mut self, lookup: &Lookup, metadata: &Metadata, node: &Attributes) {
        let is_rightful = |workload: &Workload| workload.origin() == Origin::System;
        let mut concerned: Vec<&mut Workload> =
            self.workloads.values_mut().filter(|workload| workload.is_described_by(lookup, metadata)).collect();
        let is_claimed = concerned.iter().any(|workload| is_rightful(workload));
        for workload in &mut concerned {
            let changed = if is_claimed && !is_rightful(workload) {
                workload.unlearns()
            } else {
                workload.learns(lookup, metadata)
            };
            if changed {
                workload.describe(node);
            }
        }
    }

    /// Returns the known cgroups that a scan lacks, with their paths.
    pub fn missing(&self, there: &[Cgroup]) -> Vec<(CgroupId, CgroupPath)> {
        let found: HashSet<CgroupId> = there.iter().map(|cgroup| cgroup.id).collect();
        let missing = self.cgroups.iter().filter(|(id, _)| !found.contains(id));
        missing.map(|(id, member)| (*id, member.path.clone())).collect()
    }

    /// Applies a scan, parents before children, and returns the own cgroups of new workloads. A cgroup that the scan
    /// lacks is removed only if `has_vanished` confirms it, because a scan may end at its limits.
    pub fn reconcile(
        &mut self,
        there: Vec<Cgroup>,
        has_vanished: impl Fn(CgroupId, &CgroupPath) -> bool,
        now: UnixNanos,
    ) -> Vec<CgroupId> {
        let found: HashSet<CgroupId> = there.iter().map(|cgroup| cgroup.id).collect();
        let missing = self.cgroups.iter().filter(|(id, _)| !found.contains(id));
        let gone: Vec<CgroupId> =
            missing.filter(|(id, member)| has_vanished(**id, &member.path)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.vanished(id));
        there.into_iter().filter_map(|cgroup| self.appeared(cgroup, now)).collect()
    }

    /// Records a snapshot of `time`. It has the last totals of removed workloads, and the end of expiring series.
    pub fn taken(&mut self, time: UnixNanos) {
        for workload in self.workloads.values_mut() {
            workload.stage = match workload.stage {
                Stage::Gone => Stage::Final(time),
                Stage::Expiring(None) => Stage::Expiring(Some(time)),
                // Every later snapshot repeats the totals, or the end. If the clock was set back, the earlier time is in the
                // future, and no delivery would reach it for as long.
                Stage::Final(last) => Stage::Final(last.min(time)),
                Stage::Expiring(Some(last)) => Stage::Expiring(Some(last.min(time))),
                Stage::Present => Stage::Present,
            };
        }
    }

    /// Records that all outputs have delivered the snapshots up to `time`.
    pub fn delivered(&mut self, time: UnixNanos) {
        let mut over = Vec::new();
        for workload in self.workloads.values_mut() {
            match workload.stage {
                Stage::Final(last) if last <= time => workload.stage = Stage::Expiring(None),
                Stage::Expiring(Some(last)) if last <= time => over.push(workload.cgroup),
                _ => {}
            }
        }
        over.into_iter().for_each(|id| self.forget(id));
    }

    /// Creates a registry of workloads without a table for eBPF programs.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_workloads(workloads: Vec<Workload>) -> Self {
        let mut registry = Self::default();
        for workload in workloads {
            registry.by_slot.insert(workload.slot, workload.cgroup);
            registry.workloads.insert(workload.cgroup, workload);
        }
        registry
    }

    /// Returns the slots that became free. The caller must clear their data before any other call.
    pub fn rested(&mut self) -> Vec<Slot> {
        self.slots.rested()
    }
}

#[cfg(test)]
mod tests;
