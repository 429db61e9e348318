//! Every workload with its slot, from its cgroup's appearance until its last totals are delivered.

use std::collections::{BTreeMap, HashMap, HashSet};

use undercurrent_ebpf::abi::workload::NAMESPACE;

use super::{
    Cgroup, CgroupId, CgroupPath, Identity, Slot, Stage, Workload, identify,
    slots::Slots,
    table::{CAPACITY, NoRoom, Owners, Table},
};
use crate::telemetry::UnixNanos;

/// What is known of cgroups and their workloads.
pub struct Registry {
    owners: Owners,
    slots: Slots,
    /// Every cgroup that is there, with its path and the workload that it belongs to.
    cgroups: HashMap<CgroupId, Member>,
    /// The own cgroup of each workload that is there.
    by_path: HashMap<CgroupPath, CgroupId>,
    /// By own cgroup; those that are gone until their slot is free.
    workloads: BTreeMap<CgroupId, Workload>,
    by_slot: HashMap<Slot, CgroupId>,
    by_instance: HashMap<Instance, CgroupId>,
    counts: Counts,
}

/// What stays the same when a workload is started again.
type Instance = (&'static str, Vec<u8>);

/// A cgroup that is there.
struct Member {
    path: CgroupPath,
    /// The own cgroup of its workload; `None` of the node's.
    workload: Option<CgroupId>,
}

/// What could not be done as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cgroups and namespaces that found no room in the table.
    pub no_room: u64,
    /// Workloads that were added to the overflow.
    pub folded: u64,
    /// Changes that did not fit what was known, so that a scan is due.
    pub surprises: u64,
}

impl Default for Registry {
    /// Knows nothing, and tells no program.
    fn default() -> Self {
        Self::new(Box::new(()), 0)
    }
}

impl Registry {
    /// Knows nothing yet. `limit` workloads get slots of their own.
    pub fn new(table: Box<dyn Table>, limit: u16) -> Self {
        Self {
            owners: Owners::new(table),
            slots: Slots::new(limit),
            cgroups: HashMap::new(),
            by_path: HashMap::new(),
            workloads: BTreeMap::new(),
            by_slot: HashMap::new(),
            by_instance: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// What could not be done so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The latest cgroup that is there, by its id: ids rise.
    pub fn newest(&self) -> Option<CgroupId> {
        self.cgroups.keys().max().copied()
    }

    /// Every workload, the gone among them until their slot is free.
    pub fn iter(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.values()
    }

    /// Every workload, to be told more of.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Workload> {
        self.workloads.values_mut()
    }

    /// The workload that has a slot of its own.
    pub fn by_slot(&self, slot: Slot) -> Option<&Workload> {
        self.workloads.get(self.by_slot.get(&slot)?)
    }

    /// The workload with that cgroup for its own.
    #[cfg(test)]
    pub fn get(&self, id: CgroupId) -> Option<&Workload> {
        self.workloads.get(&id)
    }

    /// The workload with that cgroup for its own, to be told more of.
    pub fn get_mut(&mut self, id: CgroupId) -> Option<&mut Workload> {
        self.workloads.get_mut(&id)
    }

    /// A cgroup is there. Yields it where it is a new workload's own.
    pub fn appeared(&mut self, cgroup: Cgroup, now: UnixNanos) -> Option<CgroupId> {
        let Cgroup { id, path } = cgroup;
        if let Some(known) = self.cgroups.get(&id) {
            if known.path == path {
                return None;
            }
            self.vanished(id);
        }
        if self.cgroups.len() >= CAPACITY {
            self.counts.no_room += 1;
            return None;
        }
        // Ids do not come back; where one does, its slot must be free first.
        if self.workloads.contains_key(&id) {
            self.counts.surprises += 1;
            return None;
        }
        match identify(&path) {
            None => {
                self.join(id, path, None);
                None
            }
            Some((identity, depth)) if path.names().count() == depth => {
                self.admit(id, path, identity, now);
                Some(id)
            }
            Some((_, depth)) => {
                match self.by_path.get(&path.ancestor(depth)).copied() {
                    Some(workload) => self.join(id, path, Some(workload)),
                    // Its workload's own cgroup was not heard of: a scan finds both.
                    None => self.counts.surprises += 1,
                }
                None
            }
        }
    }

    /// Gives a workload its place: the one that it had before, where it is started again before that is free, since
    /// whoever receives its series knows them by its resource alone.
    fn admit(&mut self, id: CgroupId, path: CgroupPath, identity: Identity, now: UnixNanos) {
        // Another cgroup with the same path has gone without a word.
        if let Some(before) = self.by_path.get(&path).copied() {
            self.vanished(before);
        }
        let instance = instance(&identity, &path);
        if let Some(known) = self.by_instance.get(&instance).copied() {
            match self.workloads.get(&known).map(|workload| workload.stage) {
                // Two cgroups of one workload.
                Some(Stage::Present) => self.join(id, path, Some(known)),
                _ => self.resume(known, id, path, instance),
            }
            return;
        }
        self.by_instance.insert(instance, id);
        let slot = self.slots.take().unwrap_or(Slot::OVERFLOW);
        if slot == Slot::OVERFLOW {
            self.counts.folded += 1;
        } else {
            self.by_slot.insert(slot, id);
        }
        self.by_path.insert(path.clone(), id);
        self.workloads.insert(id, Workload::new(slot, identity, id, path.clone(), now));
        self.join(id, path, Some(id));
    }

    fn resume(&mut self, before: CgroupId, id: CgroupId, path: CgroupPath, instance: Instance) {
        let Some(mut workload) = self.workloads.remove(&before) else { return };
        workload.resume(id, path.clone());
        self.by_instance.insert(instance, id);
        self.by_slot.insert(workload.slot, id);
        self.by_path.insert(path.clone(), id);
        self.workloads.insert(id, workload);
        self.join(id, path, Some(id));
    }

    fn join(&mut self, id: CgroupId, path: CgroupPath, workload: Option<CgroupId>) {
        let slot = workload.and_then(|own| self.workloads.get(&own)).map_or(Slot::NODE, |workload| workload.slot);
        self.set(id.0, slot);
        self.cgroups.insert(id, Member { path, workload });
    }

    fn set(&mut self, key: u64, slot: Slot) {
        if let Err(NoRoom::Full | NoRoom::TooLong) = self.owners.set(key, slot) {
            self.counts.no_room += 1;
        }
    }

    /// A cgroup is no more. What happens in it from now on, by what is left of its sockets, stands with the node.
    pub fn vanished(&mut self, id: CgroupId) {
        let Some(member) = self.cgroups.remove(&id) else { return };
        self.owners.remove(id.0);
        if member.workload != Some(id) {
            return;
        }
        if self.by_path.get(&member.path) == Some(&id) {
            self.by_path.remove(&member.path);
        }
        let Some(workload) = self.workloads.get_mut(&id) else { return };
        workload.stage = Stage::Gone;
        // The kernel removes children first. Those that were not heard of go with it.
        let children = self.cgroups.extract_if(|_, member| member.workload == Some(id));
        children.for_each(|(child, _)| self.owners.remove(child.0));
        if let Some(inode) = workload.namespace.take() {
            self.owners.remove(NAMESPACE | u64::from(inode));
        }
        if workload.slot == Slot::OVERFLOW {
            self.by_instance.remove(&instance(&workload.identity, &workload.path));
            self.workloads.remove(&id);
        }
    }

    /// Takes in a scan of the tree, parents before children, and returns the own cgroups of new workloads. A cgroup that the
    /// scan lacks has vanished if `has_vanished` confirms it: a scan that ended at its limits says nothing about the rest.
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

    /// A workload is in a network namespace of its own. The first that is found in a namespace owns it.
    pub fn in_namespace(&mut self, id: CgroupId, inode: u32) {
        let taken = self.workloads.values().any(|workload| workload.namespace == Some(inode));
        let Some(workload) = self.workloads.get_mut(&id).filter(|workload| workload.stage == Stage::Present) else {
            return;
        };
        if taken || workload.namespace == Some(inode) {
            return;
        }
        let before = workload.namespace.replace(inode);
        let slot = workload.slot;
        if let Some(before) = before {
            self.owners.remove(NAMESPACE | u64::from(before));
        }
        self.set(NAMESPACE | u64::from(inode), slot);
    }

    /// What arrives in the node's own network namespace is the node's.
    pub fn node_namespace(&mut self, inode: u32) {
        self.set(NAMESPACE | u64::from(inode), Slot::NODE);
    }

    /// A snapshot of `time` was taken: it has the last totals of what had gone by then, and the end of what was expiring.
    pub fn taken(&mut self, time: UnixNanos) {
        for workload in self.workloads.values_mut() {
            workload.stage = match workload.stage {
                Stage::Gone => Stage::Final(time),
                Stage::Expiring(None) => Stage::Expiring(Some(time)),
                stage => stage,
            };
        }
    }

    /// Every output has delivered what was taken up to `time`.
    pub fn delivered(&mut self, time: UnixNanos) {
        let mut over = Vec::new();
        for workload in self.workloads.values_mut() {
            match workload.stage {
                Stage::Final(last) if last <= time => workload.stage = Stage::Expiring(None),
                Stage::Expiring(Some(last)) if last <= time => over.push((workload.cgroup, workload.slot)),
                _ => {}
            }
        }
        for (id, slot) in over {
            if let Some(workload) = self.workloads.remove(&id) {
                self.by_instance.remove(&instance(&workload.identity, &workload.path));
            }
            self.by_slot.remove(&slot);
            self.slots.give_back(slot);
        }
    }

    /// These workloads, which no program knows.
    #[cfg(test)]
    pub fn of(workloads: Vec<Workload>) -> Self {
        let mut registry = Self::default();
        for workload in workloads {
            registry.by_slot.insert(workload.slot, workload.cgroup);
            registry.workloads.insert(workload.cgroup, workload);
        }
        registry
    }

    /// Slots that are free again: what is kept by slot must be cleared before anything else happens.
    pub fn rested(&mut self) -> Vec<Slot> {
        self.slots.rested()
    }
}

fn instance(identity: &Identity, path: &CgroupPath) -> Instance {
    let (kind, name) = identity.instance(path);
    (kind, name.to_vec())
}

#[cfg(test)]
mod tests;
