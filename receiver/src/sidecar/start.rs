//! The start of the sidecar: attaches programs and opens signals.

use std::{cell::OnceCell, sync::Arc};

use super::{Sidecar, StartError, synchronize, traces::Traces};
use crate::{
    config::Settings,
    kernel::{
        Kernel, KernelError,
        hooks::{self, Hook},
        plan::Status,
    },
    logging::STATES,
    options::{Sampling, Weight},
    packets::{FilterUpdater, Grouping, SamplingController, SharedGrouping},
    parts::Access,
    reader::{PowerMeters, SoftirqThreads},
    requirements::Requirements,
    signals::{self, Entry, LossConditions, OpenContext, SignalStatus, internal::InternalTelemetry},
    telemetry::{Resource, UnixNanos},
    watchdog::Watchdog,
    workloads::{self, Directory, Files, Following, Workloads},
};

impl Sidecar {
    /// Attaches the programs and opens every enabled signal. Logs and skips signals that cannot be opened. `directory`
    /// returns the names of containers. Requires a tokio runtime.
    ///
    /// # Errors
    /// If no measurement is possible.
    pub fn start(
        settings: &Settings,
        resource: Resource,
        access: Access,
        requirements: &Requirements,
        directory: Directory,
        watchdog: Watchdog,
    ) -> Result<Self, StartError> {
        let Access { mut kernel, files, reader, writer, processes } = access;
        let start = UnixNanos::now();
        let mut clock = kernel.wall_clock()?;
        synchronize(&mut clock);
        // Workloads are known before programs see the first packet. Later cgroups arrive as events.
        let (of_cgroups, others): (Vec<&Hook>, _) =
            requirements.hooks().iter().partition(|hook| **hook == &hooks::CGROUP_CHANGE);
        kernel.serve(&of_cgroups)?;
        let workloads = follow(&mut kernel, requirements, &resource, files.clone(), directory, start);
        kernel.serve(&others)?;
        kernel.serve_functions()?;
        let grouping = grouping(&kernel, settings, requirements, start);
        let (meters, softirq_threads) = (PowerMeters::through(reader.clone()), SoftirqThreads::through(reader.clone()));
        let (cpu_times, estimates) = (OnceCell::new(), OnceCell::new());
        let opening = OpenContext {
            kernel: &kernel,
            meters: &meters,
            softirq_threads: &softirq_threads,
            cpu_times: &cpu_times,
            estimates: &estimates,
            files: files.as_ref(),
            settings: &settings.signals,
            packets: &settings.packets,
            workloads: &workloads,
            grouping: grouping.as_ref(),
            losses: LossConditions::new(&kernel, &settings.signals, &settings.packets),
            start,
        };
        let statuses = statuses(settings, &kernel);
        let is_unavailable = |entry: &&Entry| {
            let is = |status: &SignalStatus| status.signal == entry.name && status.status == Status::Unavailable;
            statuses.iter().any(is)
        };
        let mut opened = Vec::new();
        // An unavailable signal has no points. Zeros would be wrong.
        for entry in signals::enabled(&settings.signals).filter(|entry| !is_unavailable(entry)) {
            match (entry.open)(&opening) {
                Ok(signal) => opened.push((entry.name, signal)),
                Err(error) => tracing::warn!("signal `{}` is off: {error}", entry.name),
            }
        }
        report(&statuses);
        let samples = requirements.hooks().iter().any(|hook| hook.reads_timestamps);
        let sampling = if samples { settings.packets.sampling } else { Sampling::OneIn(Weight::ONE) };
        let sampler = SamplingController::new(kernel.sample(), sampling);
        let filter_updater = FilterUpdater::new(
            settings.packets.filter.clone(),
            kernel.filter_map(),
            files,
            settings.workloads.limit,
            &workloads,
        );
        let nics = requirements.hooks().contains(&&hooks::DRIVER).then(|| kernel.follow_nics()).transpose()?;
        let internal = InternalTelemetry::new(start, settings.internal);
        // Every map is mapped. A descriptor would give access to others too, if the worker passed it on.
        kernel.close_maps();
        if settings.separation.frozen {
            kernel.freeze().map_err(KernelError::from)?;
        }
        watchdog.ready();
        let traces = Traces::new(opened.iter_mut().filter_map(|(_, signal)| signal.watch()).collect());
        Ok(Self {
            kernel,
            clock,
            signals: opened,
            cpu_times,
            sampler,
            filter_updater,
            grouping,
            traces,
            nics,
            internal,
            watchdog,
            workloads,
            resource: Arc::new(resource),
            start,
            last_collect: None,
            reader,
            writer,
            processes,
        })
    }
}

/// Returns the status of each signal and of the attribution to workloads.
#[must_use]
pub fn statuses(settings: &Settings, kernel: &Kernel) -> Vec<SignalStatus> {
    let mut statuses = signals::statuses(&settings.signals, kernel);
    statuses.push(workloads::status(&settings.workloads, kernel));
    statuses
}

/// Logs the number of signals in each state, and for a collector the state of each signal that is not healthy.
fn report(statuses: &[SignalStatus]) {
    let enabled: Vec<_> = statuses.iter().filter(|status| status.enabled).collect();
    let counted = Status::ALL.into_iter().filter_map(|state| {
        let count = enabled.iter().filter(|status| status.status == state).count();
        (count > 0).then(|| format!("{count} {}", state.as_str()))
    });
    let counted = counted.collect::<Vec<_>>().join(", ");
    tracing::info!("{} signals: {counted}; run `undercurrent doctor` for details", enabled.len());
    for SignalStatus { signal, status, reasons, .. } in enabled.iter().filter(|status| !status.reasons.is_empty()) {
        let (status, reasons) = (status.as_str(), reasons.join("; "));
        tracing::info!(target: STATES, signal, status, "{signal} is {status}: {reasons}");
    }
}

/// Opens the grouping of packets if an enabled signal requires it. Logs an error and returns `None` if grouping is
/// unavailable.
fn grouping(
    kernel: &Kernel,
    settings: &Settings,
    requirements: &Requirements,
    start: UnixNanos,
) -> Option<SharedGrouping> {
    let limit = u16::try_from(requirements.sizing(0).groups()).ok().filter(|limit| *limit > 0)?;
    let by = settings.packets.group.by.clone();
    let opened = signals::group_words(kernel).and_then(|cells| Grouping::open(kernel, by, limit, cells, start));
    let opened = opened.inspect_err(|error| tracing::warn!("cannot group packets by `packets.group.by`: {error}"));
    opened.ok().map(|grouping| SharedGrouping::new(grouping.into()))
}

/// Starts the attribution to workloads if it is enabled. If it is unavailable, logs the error and attributes everything
/// to the node.
fn follow(
    kernel: &mut Kernel,
    requirements: &Requirements,
    node: &Resource,
    files: Option<Files>,
    directory: Directory,
    start: UnixNanos,
) -> Workloads {
    let (Some(limit), Some(files)) = (requirements.workloads(), files) else {
        return Workloads::default();
    };
    let node = node.attributes.clone();
    let following = Following { files, directory, node, limit, start };
    Workloads::follow(kernel, following).unwrap_or_else(|error| {
        tracing::warn!("cannot attribute measurements to workloads; all count for the node: {error}");
        Workloads::default()
    })
}
