//! Ids of containers and pods that the names of several cgroups claim.

use std::collections::HashMap;

use super::Registry;
use crate::{CgroupId, Identity, Origin, Workload, cgroup::Subtree, telemetry::Attributes};

/// A party that named a cgroup: the system, or the owner of a subtree.
type Party = (bool, Subtree);

impl Registry {
    /// Decides which workloads have the id in their name, and describes those that gained or lost it. A user or a container can
    /// give a cgroup the name of any container. So an id below a delegated subtree counts only if no cgroup outside of the
    /// subtree claims the same id.
    pub fn settle_claims(&mut self, node: &Attributes) {
        let mut parties: HashMap<&str, Vec<Party>> = HashMap::new();
        for workload in self.workloads.values() {
            claims(workload).for_each(|id| parties.entry(id).or_default().push(party(workload)));
        }
        let is_disputed = |workload: &Workload| {
            let own = party(workload);
            let mut others = claims(workload).filter_map(|id| parties.get(id)).flatten();
            workload.origin() != Origin::System && others.any(|other| *other != own)
        };
        let changed = self.workloads.values().filter(|workload| is_disputed(workload) != workload.is_disputed());
        let changed: Vec<CgroupId> = changed.map(|workload| workload.cgroup).collect();
        for id in changed {
            if let Some(workload) = self.workloads.get_mut(&id) {
                workload.toggle_dispute();
                workload.describe(node);
            }
        }
    }
}

fn party(workload: &Workload) -> Party {
    (workload.origin() == Origin::System, Subtree::containing(&workload.path))
}

/// Returns the ids that the name of a workload's cgroup claims. The pod of a container is that of an enclosing cgroup, which
/// only users can choose.
fn claims(workload: &Workload) -> impl Iterator<Item = &str> {
    let (container, pod) = match &workload.identity {
        Identity::Container { id, runtime, pod } => {
            let id = Some(&id.0).filter(|_| !runtime.is_some_and(|runtime| runtime.identifies_by_name()));
            (id, pod.as_ref().filter(|_| matches!(workload.origin(), Origin::User(_))))
        }
        Identity::Pod(uid) => (None, Some(uid)),
        Identity::Unit(_) | Identity::Cgroup => (None, None),
    };
    container.into_iter().chain(pod.map(|uid| &uid.0)).map(String::as_str)
}
