//! The likely cause of one workload's latency over a whole run, as text.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

use crate::{
    Bus, Output, Statistics, Topics,
    telemetry::Snapshot,
    view::{
        Quantity, Recent, View,
        overview::{Figure, Workload},
    },
};

/// The view of a run, once it has ended. Clones share it.
#[derive(Clone, Default)]
pub struct Report(Arc<Mutex<Option<View>>>);

/// No workload, or more than one, has a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWorkload {
    /// The run took no snapshots.
    #[error("nothing was measured: the run ended before its second snapshot")]
    NothingMeasured,
    /// No name fits.
    #[error("no workload with network traffic has `{name}` in its name; workloads with traffic: {}", list(known))]
    Unknown {
        /// The name.
        name: String,
        /// The names of workloads with traffic.
        known: Vec<String>,
    },
    /// Several names fit.
    #[error("several workloads have `{name}` in their name: {}; write more of it", list(known))]
    Ambiguous {
        /// The name.
        name: String,
        /// The names that fit.
        known: Vec<String>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Report {
    /// Subscribes the report to the bus. `cpus` is the node's number of online CPUs. Requires a tokio runtime.
    #[must_use]
    pub fn open(&self, bus: &Bus, cpus: Option<NonZeroUsize>) -> Output {
        let statistics = Statistics::new("report");
        let (counted, report) = (statistics.clone(), self.clone());
        let mut subscription = bus.subscribe(Topics::SNAPSHOTS, &statistics);
        Output::in_task(statistics, async move {
            let mut first: Option<Arc<Snapshot>> = None;
            while let Some(snapshot) = subscription.snapshot().await {
                let began = Instant::now();
                if let Some(first) = &first {
                    *report.lock() = Some(View::new(Some(first), &snapshot, &Recent::default(), cpus));
                }
                counted.points(None, snapshot.points());
                counted.exported(None, began.elapsed());
                counted.settled(snapshot.time);
                first.get_or_insert(snapshot);
            }
        })
    }

    /// Returns the text about a workload. `name` is its name, or a part of it.
    ///
    /// # Errors
    /// If not exactly one workload has the name.
    pub fn text(&self, name: &str) -> Result<String, NoWorkload> {
        let view = self.lock();
        let view = view.as_ref().ok_or(NoWorkload::NothingMeasured)?;
        Ok(text(find(&view.workloads, name)?, view.seconds))
    }

    fn lock(&self) -> MutexGuard<'_, Option<View>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find<'a>(workloads: &'a [Workload], name: &str) -> Result<&'a Workload, NoWorkload> {
    if let Some(exact) = workloads.iter().find(|workload| workload.name == name) {
        return Ok(exact);
    }
    let part = name.to_lowercase();
    let fits: Vec<_> = workloads.iter().filter(|workload| workload.name.to_lowercase().contains(&part)).collect();
    let names =
        |workloads: &mut dyn Iterator<Item = &Workload>| workloads.map(|workload| workload.name.clone()).collect();
    match fits.as_slice() {
        [one] => Ok(one),
        [] => Err(NoWorkload::Unknown { name: name.to_owned(), known: names(&mut workloads.iter()) }),
        several => Err(NoWorkload::Ambiguous { name: name.to_owned(), known: names(&mut several.iter().copied()) }),
    }
}

fn text(workload: &Workload, seconds: Option<f64>) -> String {
    let mut lines = vec![format!("workload: {}", workload.name)];
    lines.extend(seconds.map(|seconds| format!("measured: {}", Quantity::seconds(seconds))));
    lines.push(format!("likely cause: {}", workload.cause));
    lines.extend(workload.explanation().into_iter().map(|line| format!("  {line}")));
    lines.push("figures:".to_owned());
    for figure in Figure::ALL {
        let value = workload.figures.get(figure).map(|value| figure.quantity(value).to_string());
        lines.push(format!("  {:<46} {:>8}", figure.name(), value.as_deref().unwrap_or("-")));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::overview::{Cause, Figures};

    fn workload(name: &str, wait: f64) -> Workload {
        let figures = Figures::default()
            .with(Figure::Segments, 120.0)
            .with(Figure::Wait, wait)
            .with(Figure::Stack, 4e-6)
            .with(Figure::Cpu, 0.3)
            .with(Figure::NodeBusy, 0.4);
        Workload { name: name.to_owned(), figures, cause: Cause::of(&figures) }
    }

    #[test]
    fn a_report_has_the_cause_its_evidence_and_all_figures() {
        insta::assert_snapshot!(text(&workload("checkout", 0.125), Some(10.0)));
    }

    #[test]
    fn a_part_of_a_name_is_enough_if_it_is_unique() {
        let workloads = ["web", "web-admin", "Database"].map(|name| workload(name, 0.0));
        let found = |name| find(&workloads, name).map(|workload| workload.name.as_str());
        assert_eq!([found("web"), found("admin"), found("data")], [Ok("web"), Ok("web-admin"), Ok("Database")]);
        let several = found("we").map_err(|error| error.to_string());
        assert_eq!(
            several,
            Err("several workloads have `we` in their name: web, web-admin; write more of it".to_owned())
        );
        let none = found("cache").map_err(|error| error.to_string());
        let expected = "no workload with network traffic has `cache` in its name; workloads with traffic: web, web-admin, Database";
        assert_eq!(none, Err(expected.to_owned()));
        assert_eq!(Report::default().text("web"), Err(NoWorkload::NothingMeasured));
    }

    #[tokio::test]
    async fn the_report_covers_the_time_from_the_first_snapshot_to_the_last() {
        use crate::testing::{after, lost};
        let (bus, report) = (Bus::default(), Report::default());
        let output = report.open(&bus, None);
        for seconds in [1, 2, 5] {
            bus.publish(&lost(1, after(seconds)));
            while output.statistics().totals().settled != Some(after(seconds)) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(report.lock().as_ref().and_then(|view| view.seconds), Some(4.0));
    }
}
