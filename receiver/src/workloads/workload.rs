//! One workload.

use std::sync::Arc;

use super::{
    CgroupId, CgroupPath, ContainerId, Identity, Metadata, PodMetadata, PodUid, Slot,
    environ::Service,
    resource::{overflow, resource},
};
use crate::telemetry::{Attributes, Resource, UnixNanos};

/// How far a workload is. Its slot is free after the last stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its cgroup is there.
    Present,
    /// Its cgroup is no more, and no snapshot was taken since.
    Gone,
    /// The snapshot of this time has its last totals.
    Final(UnixNanos),
    /// Its last totals are delivered; the snapshot of this time says that there will be no more.
    Expiring(Option<UnixNanos>),
}

/// Something that measurements belong to, and that is not the node as a whole.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its place; [`Slot::OVERFLOW`] where it has none of its own.
    pub slot: Slot,
    /// What it is.
    pub identity: Identity,
    /// Its own cgroup: everything below belongs to it too, but for other workloads.
    pub cgroup: CgroupId,
    /// That cgroup's path.
    pub path: CgroupPath,
    /// Since when it is followed.
    pub start: UnixNanos,
    /// What is said of it.
    pub resource: Arc<Resource>,
    /// How far it is.
    pub stage: Stage,
    /// The network namespace that it has to itself, or shares with those that came later.
    pub namespace: Option<u32>,
    metadata: Option<Metadata>,
    /// Whether somebody may answer for it when asked again.
    ask_again: bool,
    service: Option<Service>,
}

impl Workload {
    /// A workload that nothing is said of yet.
    pub fn new(slot: Slot, identity: Identity, cgroup: CgroupId, path: CgroupPath, start: UnixNanos) -> Self {
        Self {
            slot,
            identity,
            cgroup,
            path,
            start,
            resource: Arc::new(Resource { attributes: Attributes::new() }),
            stage: Stage::Present,
            namespace: None,
            metadata: None,
            ask_again: false,
            service: None,
        }
    }

    /// It is there again, in another cgroup, and counts on.
    pub fn resume(&mut self, cgroup: CgroupId, path: CgroupPath) {
        self.cgroup = cgroup;
        self.path = path;
        self.stage = Stage::Present;
        self.namespace = None;
    }

    /// Says all that is known of it by now.
    pub fn describe(&mut self, node: &Attributes) {
        let said = if self.slot == Slot::OVERFLOW {
            overflow(node)
        } else {
            resource(node, &self.identity, &self.path, self.metadata.as_ref(), self.service.as_ref())
        };
        if *self.resource != said {
            self.resource = Arc::new(said);
        }
    }

    /// Whether a pod's network namespace is its too.
    pub const fn is_in_a_pod(&self) -> bool {
        matches!(self.identity, Identity::Container { pod: Some(_), .. })
    }

    /// Takes over what one of its processes says of the service; whether that is news.
    pub fn asks_process(&mut self, pid: u32) -> bool {
        match Service::of_process(pid) {
            Ok(service) if self.service.as_ref() != Some(&service) => {
                self.service = Some(service);
                true
            }
            // A process that has ended says nothing, and takes nothing back.
            _ => false,
        }
    }

    /// Nobody has answered for a container; `again` where that may change.
    pub fn goes_without(&mut self, container: &ContainerId, again: bool) {
        if matches!(&self.identity, Identity::Container { id, .. } if id == container) {
            self.ask_again = again;
        }
    }

    /// Whether nothing is known that somebody may know.
    pub const fn answer_pending(&self) -> bool {
        self.metadata.is_none() && self.ask_again
    }

    /// Takes over what is known of a container, where that is this one, or one in this pod; whether that is news.
    pub fn learns(&mut self, container: &ContainerId, metadata: &Metadata) -> bool {
        let news = match &self.identity {
            Identity::Container { id, .. } if id == container => metadata.clone(),
            Identity::Pod(uid) => match of_pod(uid, metadata) {
                Some(metadata) => metadata,
                None => return false,
            },
            _ => return false,
        };
        let changed = self.metadata.as_ref() != Some(&news);
        self.metadata = Some(news);
        changed
    }
}

/// What a container's metadata say of the pod around it.
fn of_pod(uid: &PodUid, metadata: &Metadata) -> Option<Metadata> {
    let pod = metadata.pod.as_ref().filter(|pod| pod.uid.as_ref() == Some(&uid.0))?;
    Some(Metadata { pod: Some(PodMetadata { container: None, ..pod.clone() }), ..Metadata::default() })
}
