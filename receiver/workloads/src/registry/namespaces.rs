//! Claims of workloads to network namespaces.

use undercurrent_ebpf::abi::workload::NAMESPACE;

use super::{CgroupId, Registry, Slot, Stage, Subtree, Workload};

impl Registry {
    /// Returns the workload that claims a network namespace.
    pub fn claimant(&self, inode: u32) -> Option<&Workload> {
        self.workloads.get(self.by_namespace.get(&inode)?)
    }

    /// Claims a network namespace for a workload, unless another workload claims it. The kernel reuses inodes: on a conflict
    /// the caller verifies the claim of [`Self::claimant`], and passes a stale one to [`Self::release_namespace`] first.
    pub fn in_namespace(&mut self, id: CgroupId, inode: u32) {
        let is_present = self.workloads.get(&id).is_some_and(|workload| workload.stage == Stage::Present);
        if !is_present || self.by_namespace.contains_key(&inode) {
            return;
        }
        self.release_any(id);
        let Some(workload) = self.workloads.get_mut(&id) else { return };
        let subtree = Subtree::containing(&workload.path);
        if !self.entry_quotas.admits(&subtree) {
            self.counts.cgroup_quota += 1;
            return;
        }
        self.entry_quotas.take(&subtree);
        workload.namespace = Some(inode);
        let slot = workload.slot;
        self.by_namespace.insert(inode, id);
        self.set(NAMESPACE | u64::from(inode), slot);
    }

    /// Returns all claims to network namespaces.
    pub fn claims(&self) -> impl Iterator<Item = (&Workload, u32)> {
        self.workloads.values().filter_map(|workload| Some((workload, workload.namespace?)))
    }

    /// Releases a workload's claim to a network namespace. Packets there count with the node until the next claim. Does nothing
    /// if the workload claims another namespace by now.
    pub fn release_namespace(&mut self, id: CgroupId, inode: u32) {
        let Some(workload) = self.workloads.get_mut(&id).filter(|workload| workload.namespace == Some(inode)) else {
            return;
        };
        workload.namespace = None;
        self.entry_quotas.give_back(&Subtree::containing(&workload.path));
        self.by_namespace.remove(&inode);
        self.owners.remove(NAMESPACE | u64::from(inode));
    }

    /// Releases the namespace that a workload claims, if any.
    pub(super) fn release_any(&mut self, id: CgroupId) {
        if let Some(inode) = self.workloads.get(&id).and_then(|workload| workload.namespace) {
            self.release_namespace(id, inode);
        }
    }

    /// Attributes the node's own network namespace to the node.
    pub fn node_namespace(&mut self, inode: u32) {
        self.set(NAMESPACE | u64::from(inode), Slot::NODE);
    }
}
