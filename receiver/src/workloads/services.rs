//! Services that processes name in their environments: read off the tick, one process of a subtree at a time.

use std::{
    collections::{HashMap, VecDeque},
    io,
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::{CgroupId, CgroupPath, Files, Service, Uid};

/// The most processes of a subtree that wait for another one's environment.
const WAITING: usize = 64;
/// How long a subtree rests whose process let the reader wait: doubled each time, up to an hour.
const FIRST_REST: Duration = Duration::from_secs(60);
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// Whoever may delay the read of an environment: a process's memory may be mapped from a file system of its own user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subtree {
    /// A user's processes.
    User(Uid),
    /// The processes of one workload.
    Workload(CgroupId),
}

/// The reads of one subtree.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(CgroupId, u32)>,
    under_way: bool,
    /// Not before then, since a process let the reader wait; and for how long the last time.
    rest: Option<(Instant, Duration)>,
}

/// Reads of environments, queued and under way.
#[derive(Default)]
pub struct Services {
    queues: HashMap<Subtree, Queue>,
    reads: JoinSet<(Subtree, CgroupId, io::Result<Service>)>,
}

impl Services {
    /// Reads the environment of a process of a workload, unless the same workload waits already. Needs a tokio runtime.
    pub fn read(&mut self, workload: CgroupId, path: &CgroupPath, process: u32, files: &Files) {
        let subtree = path.user().map_or(Subtree::Workload(workload), Subtree::User);
        let queue = self.queues.entry(subtree.clone()).or_default();
        if queue.rest.is_some_and(|(until, _)| Instant::now() < until) || queue.waiting.len() >= WAITING {
            return;
        }
        if queue.waiting.iter().all(|(waiting, _)| *waiting != workload) {
            queue.waiting.push_back((workload, process));
        }
        self.start(&subtree, files);
    }

    /// Starts the next read of a subtree, if none is under way.
    fn start(&mut self, subtree: &Subtree, files: &Files) {
        let Some(queue) = self.queues.get_mut(subtree).filter(|queue| !queue.under_way) else { return };
        match queue.waiting.pop_front() {
            Some((workload, process)) => {
                queue.under_way = true;
                let (subtree, service) = (subtree.clone(), files.service(process));
                self.reads.spawn(async move { (subtree, workload, service.await) });
            }
            None if queue.rest.is_none() => drop(self.queues.remove(subtree)),
            None => {}
        }
    }

    /// Waits for the next service that is known. Pending while no read is under way. Cancel safe.
    pub async fn next(&mut self, files: &Files) -> (CgroupId, Service) {
        loop {
            let Some(Ok((subtree, workload, service))) = self.reads.join_next().await else {
                return std::future::pending().await;
            };
            if let Some(queue) = self.queues.get_mut(&subtree) {
                queue.finish(&service);
            }
            self.start(&subtree, files);
            if let Ok(service) = service {
                return (workload, service);
            }
        }
    }
}

impl Queue {
    fn finish(&mut self, service: &io::Result<Service>) {
        self.under_way = false;
        if !service.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return;
        }
        let rest = self.rest.map_or(FIRST_REST, |(_, last)| (last * 2).min(LONGEST_REST));
        self.rest = Some((Instant::now() + rest, rest));
        self.waiting.clear();
    }
}
