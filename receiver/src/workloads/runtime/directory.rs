//! Questions and answers.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    task::JoinSet,
};

use super::{
    Statistics,
    bounds::Bounded,
    failure::Reason,
    kubernetes::{self, Kubernetes},
    opener::Opener,
    question::Question,
    rooms::{Admission, Rooms},
    source::Source,
    sources::Sources,
    statistics::Counters,
};
use crate::{
    environment::Environment,
    node::Node,
    options::Workloads as Settings,
    reader::Places,
    workloads::{ContainerId, Metadata},
};

/// How long to wait before the same question is asked again: cgroups appear before runtimes know the container.
const WAITS: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1)];
/// And once more where the API server is asked, which hears of a container when the kubelet has reported it.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// The longest id that runtimes make has 76 characters.
const ID: usize = 128;

/// An answer to a question. It holds for the cgroups that the question [reaches](Question::reaches).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// What is known, or why nothing is.
    pub outcome: Result<Metadata, Unknown>,
}

/// Why nothing is known of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Unknown {
    /// There is no source that could be asked: asking again makes sense once a runtime's socket appears.
    #[error("no container runtime can be asked here")]
    NobodyToAsk,
    /// Nobody who was asked knows it: it is gone, or somebody else's.
    #[error("no container runtime here knows it")]
    NotFound,
    /// Somebody who may know it did not answer: asking again later makes sense.
    #[error("its container runtime did not answer ({})", .0.as_str())]
    NoAnswer(Reason),
}

impl Unknown {
    /// Its name in lower snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NobodyToAsk => "nobody_to_ask",
            Self::NotFound => "not_found",
            Self::NoAnswer(_) => "no_answer",
        }
    }

    /// What it says of a question that one source did not answer.
    fn because(reason: Reason) -> Self {
        match reason {
            Reason::NotFound => Self::NotFound,
            Reason::Unsupported => Self::NobodyToAsk,
            reason => Self::NoAnswer(reason),
        }
    }
}

/// Asks container runtimes, and Kubernetes, off the tick.
pub struct Directory {
    questions: mpsc::UnboundedSender<Open>,
    answers: mpsc::UnboundedReceiver<Answered>,
    /// Bounds both channels: a question holds its permit until its answer is taken.
    rooms: Rooms,
    counters: Arc<Counters>,
}

struct Open {
    question: Question,
    permit: OwnedSemaphorePermit,
}

struct Answered {
    answer: Answer,
    permit: OwnedSemaphorePermit,
}

impl Directory {
    /// Finds sources by the settings. Nothing is asked or looked for before the first question, but for the pods of this
    /// node where the Kubernetes API is at hand. Needs a tokio runtime, and ends with the value.
    #[must_use]
    pub fn start(settings: &Settings, node: &Node, environment: Environment<'_>, opener: Opener) -> Self {
        let places = Places::new(settings.sockets(), environment, crate::node::host_root());
        let access = settings.kubernetes.then(|| kubernetes::Access::detect(node, environment)).flatten();
        Self::with(Sources::new(opener, places, access.and_then(Kubernetes::watch).map(Source::kubernetes)))
    }

    pub(super) fn with(sources: Sources) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let (answered, answers) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let desk = Desk { sources, counters: Arc::clone(&counters) };
        // It ends when nobody can ask any more, and the open questions with it.
        tokio::spawn(serve(Arc::new(desk), asked, answered));
        Self { questions, answers, rooms: Rooms::new(), counters }
    }

    /// Submits a question. It waits while too many questions of its user are open. Returns false if the question was refused
    /// because too many wait; the caller must submit it again later.
    pub fn ask(&mut self, question: Question) -> bool {
        match self.rooms.admit(question) {
            Admission::Open(question, permit) => {
                self.counters.question();
                self.questions.send(Open { question, permit }).is_ok()
            }
            Admission::Waiting => true,
            Admission::Refused => {
                self.counters.queue_full();
                false
            }
        }
    }

    /// The next answer, one for each question that was taken, in the order in which they are found. Cancel safe; never
    /// ready while no question is open.
    pub async fn answer(&mut self) -> Answer {
        let Some(Answered { answer, permit }) = self.answers.recv().await else { return std::future::pending().await };
        drop(permit);
        if let Some(question) = self.rooms.next(answer.question.user) {
            self.ask(question);
        }
        answer
    }

    /// Totals since the start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.counters.totals()
    }
}

async fn serve(desk: Arc<Desk>, mut asked: mpsc::UnboundedReceiver<Open>, answered: mpsc::UnboundedSender<Answered>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            question = asked.recv() => match question {
                Some(Open { question, permit }) => {
                    let (desk, answered) = (Arc::clone(&desk), answered.clone());
                    open.spawn(async move {
                        let outcome = desk.outcome(&question).await;
                        // Nobody waits any more when the directory is gone.
                        let _ = answered.send(Answered { answer: Answer { question, outcome }, permit });
                    });
                }
                None => return,
            },
            Some(_) = open.join_next() => {}
        }
    }
}

struct Desk {
    sources: Sources,
    counters: Arc<Counters>,
}

impl Desk {
    async fn outcome(&self, question: &Question) -> Result<Metadata, Unknown> {
        let found = if is_id(&question.container.0) { self.find(question).await } else { Err(Unknown::NotFound) };
        match &found {
            Ok(known) => self.counters.known(known.left_out),
            Err(unknown) => self.counters.unknown(*unknown),
        }
        found.map(|known| known.metadata)
    }

    async fn find(&self, question: &Question) -> Result<Bounded, Unknown> {
        let last = self.sources.ask_kubernetes(question).then_some(LAST_WAIT);
        for wait in WAITS.into_iter().chain(last) {
            match self.once(question).await {
                Err(Unknown::NotFound | Unknown::NoAnswer(_)) => tokio::time::sleep(wait).await,
                outcome => return outcome,
            }
        }
        self.once(question).await
    }

    /// Asks one source after the other until one knows. What says most about the others' silence is returned.
    async fn once(&self, question: &Question) -> Result<Bounded, Unknown> {
        let mut unknown = Unknown::NobodyToAsk;
        for source in self.sources.serving(question).await {
            match self.call(&source, &question.container).await {
                Ok(known) => return Ok(known),
                Err(reason) => unknown = unknown.max(Unknown::because(reason)),
            }
        }
        Err(unknown)
    }

    /// Asks a source, unless it is left alone at the moment.
    async fn call(&self, source: &Source, container: &ContainerId) -> Result<Bounded, Reason> {
        let failed = |reason: &Reason| self.counters.failure(source.api(), *reason);
        let turn = source.turn().await.inspect_err(|reason| {
            if *reason == Reason::Busy {
                failed(reason);
            }
        })?;
        source.ask(container, turn).await.inspect_err(failed)
    }
}

/// Whether a runtime may have made it. Others would change the meaning of a request's path.
fn is_id(text: &str) -> bool {
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    text.len() <= ID && text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(ordinary)
}
