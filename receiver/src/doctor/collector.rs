//! A trial delivery to each configured collector, with the worker's privileges.

use serde::{Deserialize, Serialize};

use crate::{
    causes::chain,
    export::otlp::{Access, Items, Settings, Trial},
    parts::{self, AccessError, Reach},
};

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    /// The kind of the items: `metrics` or `spans`.
    pub items: String,
    /// The endpoint.
    pub endpoint: String,
    /// The variable or key that configures the endpoint; `None` for the default endpoint.
    pub origin: Option<String>,
    /// The reason and the remedy, if the collector accepts no requests.
    pub problem: Option<String>,
}

/// Sends an empty request to each collector, and checks that the worker can drop its privileges. This process must be
/// single-threaded.
///
/// # Errors
/// The reason why the sidecar would not run.
pub fn try_all(collectors: &[(Items, &Settings)]) -> Result<Vec<Collector>, AccessError> {
    let prepare = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start tokio: {error}"))?;
        let entered = runtime.enter();
        let trial = |(items, settings): &(Items, &Settings)| {
            // A trial makes two connections at most. The worker may not make them to each socket.
            let access = Access::connected(settings.socket.iter(), 2);
            Trial::new(*items, Settings { access, ..(*settings).clone() })
        };
        let trials = collectors.iter().map(trial).collect::<Result<Vec<_>, _>>().map_err(|error| chain(&error))?;
        drop(entered);
        Ok((runtime, trials))
    };
    let reach =
        Reach { ports: collectors.iter().filter_map(|(_, settings)| settings.port()).collect(), ..Reach::default() };
    let problems = parts::in_worker(&reach, prepare, |(runtime, trials)| {
        runtime.block_on(async {
            let mut problems = Vec::new();
            for trial in trials {
                problems.push(trial.run().await.err());
            }
            problems
        })
    })?;
    let result = |((items, settings), problem): (&(Items, &Settings), Option<String>)| Collector {
        items: items.as_str().to_owned(),
        endpoint: settings.shown_endpoint(),
        origin: settings.origin.map(str::to_owned),
        problem,
    };
    Ok(collectors.iter().zip(problems).map(result).collect())
}
