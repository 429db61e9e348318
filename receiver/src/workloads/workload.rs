//! One workload.

use std::sync::Arc;

use super::{
    CgroupId, CgroupPath, Identity, Metadata, Origin, PodMetadata, PodUid, Slot, Uid,
    resource::{Subject, resource},
    runtime::Question,
};
use crate::{
    cgroup::{by_path, origin},
    reader::Service,
    telemetry::{Attributes, Resource, UnixNanos},
};

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

/// A kind and a name. The pair is unique among the host's workloads, and `service.instance.id` is its hash.
pub type Instance = (&'static str, Vec<u8>);

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
    /// The kind and name that no other workload has. They survive a restart of the workload.
    pub instance: Instance,
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
            namespace: None,
            metadata: None,
            ask_again: false,
            service: None,
        }
    }

    /// Replaces an instance that another workload already has. The new one is made of the path, which is unique.
    pub fn go_by_path(&mut self) {
        let (kind, path) = by_path(&self.path);
        self.instance = (kind, path.to_vec());
    }

    /// Continues the workload in a new cgroup at the same path.
    pub fn resume(&mut self, cgroup: CgroupId) {
        self.cgroup = cgroup;
        self.stage = Stage::Present;
        self.namespace = None;
    }

    /// Returns who may have named the workload's cgroup.
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

    /// Rebuilds the resource from everything known by now. Workloads in the overflow keep the resource that they share.
    pub fn describe(&mut self, node: &Attributes) {
        if self.is_folded() {
            return;
        }
        let (kind, name) = &self.instance;
        let subject = Subject { identity: &self.identity, path: &self.path, instance: (kind, name) };
        let said = resource(node, &subject, self.metadata.as_ref(), self.service.as_ref());
        if *self.resource != said {
            self.resource = Arc::new(said);
        }
    }

    /// Whether a pod's network namespace is its too.
    pub const fn is_in_a_pod(&self) -> bool {
        matches!(self.identity, Identity::Container { pod: Some(_), .. })
    }

    /// Stores the service that one of its processes names, and returns true if that is another one than before.
    pub fn serves(&mut self, service: Service) -> bool {
        if self.is_folded() {
            return false;
        }
        let is_new = self.service.as_ref() != Some(&service);
        self.service = Some(service);
        is_new
    }

    /// Nobody has answered for a container; `again` where that may change.
    pub fn goes_without(&mut self, question: &Question, again: bool) {
        let is_container = matches!(&self.identity, Identity::Container { id, .. } if *id == question.container);
        if is_container && question.reaches(&self.path) {
            self.ask_again = again;
        }
    }

    /// Whether nothing is known that somebody may know.
    pub const fn answer_pending(&self) -> bool {
        self.metadata.is_none() && self.ask_again
    }

    /// True without metadata and without a service.
    #[cfg(test)]
    pub fn keeps_nothing(&self) -> bool {
        self.metadata.is_none() && self.service.is_none()
    }

    /// True if the metadata describe this workload: it is the container, or the container's pod.
    pub fn is_concerned(&self, question: &Question, metadata: &Metadata) -> bool {
        match &self.identity {
            _ if !question.reaches(&self.path) => false,
            Identity::Container { id, .. } => *id == question.container,
            Identity::Pod(uid) => question.pod.as_ref() == Some(uid) && of_pod(uid, metadata).is_some(),
            _ => false,
        }
    }

    /// Takes over what is known of a container, where that is this one, or one in this pod; whether that is news.
    pub fn learns(&mut self, question: &Question, metadata: &Metadata) -> bool {
        if !question.reaches(&self.path) {
            return false;
        }
        let news = match &self.identity {
            _ if self.is_folded() => return false,
            Identity::Container { id, .. } if *id == question.container => metadata.clone(),
            // The container's path must name the pod too: any image may have labels that claim a pod.
            Identity::Pod(uid) if question.pod.as_ref() == Some(uid) => match of_pod(uid, metadata) {
                Some(metadata) => metadata,
                None => return false,
            },
            _ => return false,
        };
        let changed = self.metadata.as_ref() != Some(&news);
        self.metadata = Some(news);
        changed
    }

    /// Drops the metadata of a container. True if there were any.
    pub fn unlearns(&mut self) -> bool {
        self.metadata.take().is_some()
    }
}

/// What a container's metadata say of the pod around it.
fn of_pod(uid: &PodUid, metadata: &Metadata) -> Option<Metadata> {
    let pod = metadata.pod.as_ref().filter(|pod| pod.uid.as_ref() == Some(&uid.0))?;
    Some(Metadata { pod: Some(PodMetadata { container: None, ..pod.clone() }), ..Metadata::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{ContainerId, Runtime, Uid};

    const SYSTEM: &str = "/system.slice/docker-x.scope";
    const USER: &str = "/user.slice/user-1000.slice/user@1000.service/docker-x.scope";

    fn container(path: &str) -> Workload {
        let identity =
            Identity::Container { id: ContainerId("x".to_owned()), runtime: Some(Runtime::Docker), pod: None };
        Workload::new(Slot(2), identity, CgroupId(1), CgroupPath::new(path.as_bytes()), UnixNanos(0))
    }

    fn question(user: Option<Uid>) -> Question {
        Question { container: ContainerId("x".to_owned()), runtime: None, pod: None, user }
    }

    #[test]
    fn an_answer_holds_for_containers_of_the_same_subtree() {
        let metadata = Metadata { name: Some("web".to_owned()), ..Metadata::default() };
        for (path, user) in [(SYSTEM, None), (USER, Some(Uid(1000)))] {
            for asked in [None, Some(Uid(1000)), Some(Uid(1001))] {
                assert_eq!(container(path).learns(&question(asked), &metadata), asked == user, "{path} {asked:?}");
                let mut unanswered = container(path);
                unanswered.goes_without(&question(asked), true);
                assert_eq!(unanswered.answer_pending(), asked == user, "{path} {asked:?}");
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
            assert_eq!(pod.learns(&Question { pod: named.clone(), ..question(None) }, &metadata), learns, "{named:?}");
        }
    }
}
