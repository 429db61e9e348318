//! Lookups of containers and their results.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    task::JoinSet,
};

use super::{
    Statistics,
    admission::{Admission, Admissions},
    bounds::Bounded,
    failure::{Reason, Unknown},
    kubernetes::{self, Kubernetes},
    lookup::Lookup,
    runtimes::Runtimes,
    source::Source,
    sources::Sources,
    statistics::Counters,
};
use crate::{ContainerId, Metadata, environment::Environment, node::Node, options::Workloads as Settings};

/// The delays before retries: cgroups exist before runtimes list the container.
const WAITS: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1)];
/// The delay of an additional retry with Kubernetes: the API server lists a container once the kubelet has reported it.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// The maximum length of an id. The longest id of known runtimes has 76 characters.
const ID: usize = 128;

/// The result of a lookup. It applies to the cgroups that the lookup [reaches](Lookup::reaches).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupResult {
    /// The lookup.
    pub lookup: Lookup,
    /// The metadata, or the reason why they are unknown.
    pub outcome: Result<Metadata, Unknown>,
}

/// Looks up containers in container runtimes and in Kubernetes, outside of the tick.
pub struct Directory {
    questions: mpsc::UnboundedSender<Open>,
    answers: mpsc::UnboundedReceiver<Completed>,
    /// Bounds both channels: a lookup holds its permit until its result is taken.
    admissions: Admissions,
    counters: Arc<Counters>,
}

struct Open {
    lookup: Lookup,
    permit: OwnedSemaphorePermit,
}

struct Completed {
    answer: LookupResult,
    permit: OwnedSemaphorePermit,
}

impl Directory {
    /// Creates the sources of the configuration. Nothing is searched or called before the first lookup, except the pods
    /// of this node if the Kubernetes API is available. Needs a tokio runtime; its tasks end when the value is dropped.
    #[must_use]
    pub fn start(settings: &Settings, node: &Node, environment: Environment<'_>, runtimes: Runtimes) -> Self {
        let access = settings.kubernetes.then(|| kubernetes::Access::detect(node, environment)).flatten();
        Self::with(Sources::new(runtimes, access.and_then(Kubernetes::watch).map(Source::kubernetes)))
    }

    pub(super) fn with(sources: Sources) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let (answered, answers) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let service = LookupService { sources, counters: Arc::clone(&counters) };
        // The task and all open lookups end once the sender is dropped.
        tokio::spawn(serve(Arc::new(service), asked, answered));
        Self { questions, answers, admissions: Admissions::new(), counters }
    }

    /// Submits a lookup. It waits while its user has too many open lookups. Returns false if too many lookups wait; the
    /// caller must submit it again later.
    pub fn submit(&mut self, lookup: Lookup) -> bool {
        match self.admissions.admit(lookup) {
            Admission::Open(lookup, permit) => {
                self.counters.lookup();
                self.questions.send(Open { lookup, permit }).is_ok()
            }
            Admission::Waiting => true,
            Admission::Refused => {
                self.counters.queue_full();
                false
            }
        }
    }

    /// Returns the next result: one for each accepted lookup, in the order of completion. Pending while no lookup is
    /// open. Cancel safe.
    pub async fn next_result(&mut self) -> LookupResult {
        let Some(Completed { answer, permit }) = self.answers.recv().await else { return std::future::pending().await };
        drop(permit);
        if let Some(lookup) = self.admissions.next(answer.lookup.user) {
            self.submit(lookup);
        }
        answer
    }

    /// Returns the totals since the start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.counters.totals()
    }
}

async fn serve(
    service: Arc<LookupService>,
    mut asked: mpsc::UnboundedReceiver<Open>,
    answered: mpsc::UnboundedSender<Completed>,
) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            lookup = asked.recv() => match lookup {
                Some(Open { lookup, permit }) => {
                    let (service, answered) = (Arc::clone(&service), answered.clone());
                    open.spawn(async move {
                        let outcome = service.outcome(&lookup).await;
                        // The send fails if the directory has been dropped.
                        let _ = answered.send(Completed { answer: LookupResult { lookup, outcome }, permit });
                    });
                }
                None => return,
            },
            Some(_) = open.join_next() => {}
        }
    }
}

struct LookupService {
    sources: Sources,
    counters: Arc<Counters>,
}

impl LookupService {
    async fn outcome(&self, lookup: &Lookup) -> Result<Metadata, Unknown> {
        let found = if is_id(&lookup.container.0) { self.find(lookup).await } else { Err(Unknown::NotFound) };
        match &found {
            Ok(known) => self.counters.known(known.left_out),
            Err(unknown) => self.counters.unknown(*unknown),
        }
        found.map(|known| known.metadata)
    }

    async fn find(&self, lookup: &Lookup) -> Result<Bounded, Unknown> {
        let last = self.sources.includes_kubernetes(lookup).then_some(LAST_WAIT);
        for wait in WAITS.into_iter().chain(last) {
            match self.once(lookup).await {
                Err(Unknown::NotFound | Unknown::NoAnswer(_)) => tokio::time::sleep(wait).await,
                outcome => return outcome,
            }
        }
        self.once(lookup).await
    }

    /// Calls the sources in order until one has the container. Otherwise returns the most specific failure.
    async fn once(&self, lookup: &Lookup) -> Result<Bounded, Unknown> {
        let mut unknown = Unknown::NobodyToAsk;
        for source in self.sources.serving(lookup).await {
            match self.call(&source, &lookup.container).await {
                Ok(known) => return Ok(known),
                Err(reason) => unknown = unknown.max(Unknown::because(reason)),
            }
        }
        Err(unknown)
    }

    /// Calls a source, unless it is in back-off.
    async fn call(&self, source: &Source, container: &ContainerId) -> Result<Bounded, Reason> {
        let failed = |reason: &Reason| self.counters.failure(source.api(), *reason);
        let turn = source.acquire().await.inspect_err(|reason| {
            if *reason == Reason::Busy {
                failed(reason);
            }
        })?;
        source.look_up(container, turn).await.inspect_err(failed)
    }
}

/// Returns true for characters that runtimes use in ids. Other characters could change the meaning of a request path.
fn is_id(text: &str) -> bool {
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    text.len() <= ID && text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(ordinary)
}
