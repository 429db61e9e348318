//! Services that processes declare in their environments, read outside of the tick. Each party has one read at a time.

use std::{
    collections::{HashMap, VecDeque},
    io,
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::{CgroupId, CgroupPath, Files, Service};
use crate::cgroup::Subtree;

/// The maximum number of queued reads of one party.
const WAITING: usize = 64;
/// The number of parties above which idle parties are removed.
const PARTIES: usize = 1024;
/// The first back-off of a party after a timed-out read. It doubles each time, up to an hour.
const FIRST_REST: Duration = Duration::from_secs(60);
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// A party that can delay reads of its processes' environments, for example with a FUSE file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Party {
    /// A user, or a container with all containers that it creates.
    Delegated(Subtree),
    /// The processes of one workload.
    Workload(CgroupId),
}

/// The reads of one party.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(CgroupId, CgroupPath, u32)>,
    under_way: bool,
    /// The end and the length of the current back-off, after a timed-out read.
    rest: Option<(Instant, Duration)>,
}

/// Reads of environments, queued and under way.
#[derive(Default)]
pub struct Services {
    queues: HashMap<Party, Queue>,
    reads: JoinSet<(Party, CgroupId, io::Result<Service>)>,
    timeouts: u64,
}

impl Services {
    /// Returns the number of reads that timed out.
    pub const fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// Queues a read of a process's environment, unless a read of the workload is already queued. Needs a tokio
    /// runtime.
    pub fn read(&mut self, workload: CgroupId, path: &CgroupPath, process: u32, files: &Files) {
        let party = Party::new(workload, path);
        if self.queues.len() >= PARTIES {
            self.queues.retain(|_, queue| !queue.is_idle());
        }
        let queue = self.queues.entry(party.clone()).or_default();
        if queue.rest.is_some_and(|(until, _)| Instant::now() < until) || queue.waiting.len() >= WAITING {
            return;
        }
        if queue.waiting.iter().all(|(waiting, ..)| *waiting != workload) {
            queue.waiting.push_back((workload, path.clone(), process));
        }
        self.start(&party, files);
    }

    /// Starts the next read of a party, if no read is running.
    fn start(&mut self, party: &Party, files: &Files) {
        let Some(queue) = self.queues.get_mut(party).filter(|queue| !queue.under_way) else { return };
        match queue.waiting.pop_front() {
            Some((workload, path, process)) => {
                queue.under_way = true;
                let (party, service) = (party.clone(), files.service(process, &path));
                self.reads.spawn(async move { (party, workload, service.await) });
            }
            None if queue.rest.is_none() => drop(self.queues.remove(party)),
            None => {}
        }
    }

    /// Waits for the next service. Pending while no read is running. Cancel safe.
    pub async fn next(&mut self, files: &Files) -> (CgroupId, Service) {
        loop {
            let Some(Ok((party, workload, service))) = self.reads.join_next().await else {
                return std::future::pending().await;
            };
            let has_hung = service.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
            self.timeouts += u64::from(has_hung);
            if let Some(queue) = self.queues.get_mut(&party) {
                queue.finish(has_hung);
            }
            self.start(&party, files);
            if let Ok(service) = service {
                return (workload, service);
            }
        }
    }
}

impl Party {
    fn new(workload: CgroupId, path: &CgroupPath) -> Self {
        Some(Subtree::containing(path)).filter(Subtree::is_delegated).map_or(Self::Workload(workload), Self::Delegated)
    }
}

impl Queue {
    fn is_idle(&self) -> bool {
        !self.under_way && self.waiting.is_empty() && self.rest.is_none_or(|(until, _)| until <= Instant::now())
    }

    fn finish(&mut self, has_hung: bool) {
        self.under_way = false;
        if !has_hung {
            return;
        }
        let rest = self.rest.map_or(FIRST_REST, |(_, last)| (last * 2).min(LONGEST_REST));
        self.rest = Some((Instant::now() + rest, rest));
        self.waiting.clear();
    }
}
