//! A workload and its metadata.

use std::{sync::Arc, time::Duration};

use super::{
    CgroupId, CgroupPath, Identity, Metadata, Origin, PodMetadata, PodUid, Slot, Uid,
    resource::{Subject, resource},
    runtime::Lookup,
};
use crate::{
    cgroup::{by_path, origin},
    reader::Service,
    telemetry::{Attributes, Resource, UnixNanos},
};

/// The life cycle of a workload. Its slot is free after the last stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The cgroup exists.
    Present,
    /// The cgroup has been removed, and no snapshot has been taken since.
    Gone,
    /// The snapshot of this time has the last totals.
    Final(UnixNanos),
    /// The last totals have been delivered. The snapshot of this time marks the end of the series.
    Expiring(Option<UnixNanos>),
}

/// A kind and a name. The pair is unique among the host's workloads, and `service.instance.id` is its hash.
pub type Instance = (&'static str, Vec<u8>);

/// A workload: the subject of measurements below the level of the node.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The slot; [`Slot::OVERFLOW`] for workloads beyond the limit.
    pub slot: Slot,
    /// The kind and the identifiers.
    pub identity: Identity,
    /// The own cgroup. Its descendants belong to the workload, except nested workloads.
    pub cgroup: CgroupId,
    /// The path of the own cgroup.
    pub path: CgroupPath,
    /// The unique kind and name. They survive a restart of the workload.
    pub instance: Instance,
    /// The start time of the totals.
    pub start: UnixNanos,
    /// The resource.
    pub resource: Arc<Resource>,
    /// The stage of the life cycle.
    pub stage: Stage,
    /// The CPU time of the removed cgroup and its descendants, as a program read it; `None` if it is unknown.
    pub last_cpu_time: Option<Duration>,
    /// The claimed network namespace. Workloads that came later may share it.
    pub namespace: Option<u32>,
    /// True if a cgroup of another party has the container id or pod uid in the name of this workload's cgroup, which is
    /// then a plain cgroup.
    disputed: bool,
    metadata: Option<Metadata>,
    /// True if a later lookup may succeed.
    ask_again: bool,
    service: Option<Service>,
}

impl Workload {
    /// Creates a workload with an empty resource.
    pub fn new(slot: Slot, identity: Identity, cgroup: CgroupId, path: CgroupPath, start: UnixNanos) -> Self {
        let (kind, name) = identity.instance(&path);
        Self {
            instance: (kind, name.to_vec()),
            slot,
            identity,
            cgroup,
            path,
            start,
            resource: Arc::new(Resource { attributes: Attributes::new() }),
            stage: Stage::Present,
            last_cpu_time: None,
            namespace: None,
            disputed: false,
            metadata: None,
            ask_again: false,
            service: None,
        }
    }

    /// Replaces the instance by the unique instance of the path.
    pub fn use_path_as_instance(&mut self) {
        let (kind, path) = by_path(&self.path);
        self.instance = (kind, path.to_vec());
    }

    /// Continues the workload in a new cgroup at the same path.
    pub fn resume(&mut self, cgroup: CgroupId) {
        self.cgroup = cgroup;
        self.stage = Stage::Present;
        self.namespace = None;
        self.last_cpu_time = None;
    }

    /// Returns the party that may have named the cgroup of the workload.
    pub fn origin(&self) -> Origin {
        origin(&self.path)
    }

    /// The owner of the user's subtree that contains the workload. Only runtimes of that user may provide its metadata.
    pub fn user(&self) -> Option<Uid> {
        self.path.user()
    }

    /// True if the workload is in the overflow. It then keeps no metadata, service or resource of its own.
    pub fn is_folded(&self) -> bool {
        self.slot == Slot::OVERFLOW
    }

    /// Rebuilds the resource from the current metadata. Workloads in the overflow keep the shared resource.
    pub fn describe(&mut self, node: &Attributes) {
        if self.is_folded() {
            return;
        }
        let (kind, name) = &self.instance;
        let (identity, metadata) =
            if self.disputed { (&Identity::Cgroup, None) } else { (&self.identity, self.metadata.as_ref()) };
        let subject = Subject { identity, path: &self.path, instance: (kind, name) };
        let said = resource(node, &subject, metadata, self.service.as_ref());
        if *self.resource != said {
            self.resource = Arc::new(said);
        }
    }

    /// True if the id in the name of the cgroup belongs to another party.
    pub const fn is_disputed(&self) -> bool {
        self.disputed
    }

    /// Removes the id in the name of the cgroup from the resource, or restores it.
    pub const fn toggle_dispute(&mut self) {
        self.disputed = !self.disputed;
    }

    /// Returns true for a container of a pod, which shares the pod's network namespace.
    pub const fn is_in_a_pod(&self) -> bool {
        matches!(self.identity, Identity::Container { pod: Some(_), .. })
    }

    /// Stores the service that a process declares. Returns true if the service changed.
    pub fn serves(&mut self, service: Service) -> bool {
        if self.is_folded() {
            return false;
        }
        let is_new = self.service.as_ref() != Some(&service);
        self.service = Some(service);
        is_new
    }

    /// Records a failed lookup; `again` is true if a later lookup may succeed.
    pub fn record_failed_lookup(&mut self, lookup: &Lookup, again: bool) {
        let is_container = matches!(&self.identity, Identity::Container { id, .. } if *id == lookup.container);
        if is_container && lookup.reaches(&self.path) {
            self.ask_again = again;
        }
    }

    /// Returns true if the metadata are missing and a later lookup may succeed.
    pub const fn needs_lookup(&self) -> bool {
        self.metadata.is_none() && self.ask_again
    }

    /// True without metadata and without a service.
    #[cfg(test)]
    pub fn keeps_nothing(&self) -> bool {
        self.metadata.is_none() && self.service.is_none()
    }

    /// Returns true if the metadata describe this workload: the container, or the pod of the container.
    pub fn is_described_by(&self, lookup: &Lookup, metadata: &Metadata) -> bool {
        match &self.identity {
            _ if !lookup.reaches(&self.path) => false,
            Identity::Container { id, .. } => *id == lookup.container,
            Identity::Pod(uid) => lookup.pod.as_ref() == Some(uid) && of_pod(uid, metadata).is_some(),
            _ => false,
        }
    }

    /// Stores the metadata of this container or of a container in this pod. Returns true if the metadata changed.
    pub fn learns(&mut self, lookup: &Lookup, metadata: &Metadata) -> bool {
        if !lookup.reaches(&self.path) {
            return false;
        }
        let news = match &self.identity {
            _ if self.is_folded() => return false,
            Identity::Container { id, .. } if *id == lookup.container => metadata.clone(),
            // The cgroup path must contain the pod too: the labels of any image can claim a pod.
            Identity::Pod(uid) if lookup.pod.as_ref() == Some(uid) => match of_pod(uid, metadata) {
                Some(metadata) => metadata,
                None => return false,
            },
            _ => return false,
        };
        let changed = self.metadata.as_ref() != Some(&news);
        self.metadata = Some(news);
        changed
    }

    /// Drops the metadata of a container. Returns true if there were any.
    pub fn unlearns(&mut self) -> bool {
        self.metadata.take().is_some()
    }
}

/// Returns the metadata of the pod of a container.
fn of_pod(uid: &PodUid, metadata: &Metadata) -> Option<Metadata> {
    let pod = metadata.pod.as_ref().filter(|pod| pod.uid.as_ref() == Some(&uid.0))?;
    Some(Metadata { pod: Some(PodMetadata { container: None, ..pod.clone() }), ..Metadata::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContainerId, Runtime, Uid};

    const SYSTEM: &str = "/system.slice/docker-x.scope";
    const USER: &str = "/user.slice/user-1000.slice/user@1000.service/docker-x.scope";

    fn container(path: &str) -> Workload {
        let identity =
            Identity::Container { id: ContainerId("x".to_owned()), runtime: Some(Runtime::Docker), pod: None };
        Workload::new(Slot(2), identity, CgroupId(1), CgroupPath::new(path.as_bytes()), UnixNanos(0))
    }

    fn lookup(user: Option<Uid>) -> Lookup {
        Lookup { container: ContainerId("x".to_owned()), runtime: None, pod: None, user }
    }

    #[test]
    fn an_answer_holds_for_containers_of_the_same_subtree() {
        let metadata = Metadata { name: Some("web".to_owned()), ..Metadata::default() };
        for (path, user) in [(SYSTEM, None), (USER, Some(Uid(1000)))] {
            for asked in [None, Some(Uid(1000)), Some(Uid(1001))] {
                assert_eq!(container(path).learns(&lookup(asked), &metadata), asked == user, "{path} {asked:?}");
                let mut unanswered = container(path);
                unanswered.record_failed_lookup(&lookup(asked), true);
                assert_eq!(unanswered.needs_lookup(), asked == user, "{path} {asked:?}");
            }
        }
    }
    #[test]
    fn an_answer_describes_the_pod_of_the_container_s_path_alone() {
        let uid = PodUid("2fc932ce-fdcc-454b-97bd-aadfdeb4c340".to_owned());
        let path = CgroupPath::new(b"/kubepods/pod2fc932ce-fdcc-454b-97bd-aadfdeb4c340");
        let described =
            PodMetadata { uid: Some(uid.0.clone()), name: Some("web-0".to_owned()), ..PodMetadata::default() };
        let metadata = Metadata { pod: Some(described), ..Metadata::default() };
        for (named, learns) in [(Some(uid.clone()), true), (Some(PodUid("other".to_owned())), false), (None, false)] {
            let identity = Identity::Pod(uid.clone());
            let mut pod = Workload::new(Slot(2), identity, CgroupId(1), path.clone(), UnixNanos(0));
            assert_eq!(pod.learns(&Lookup { pod: named.clone(), ..lookup(None) }, &metadata), learns, "{named:?}");
        }
    }
}
