//! The sidecar at work: kernel and signals opened, a snapshot at every tick, outputs fed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::signal::unix::{Signal as Notification, SignalKind, signal};

use crate::{
    config::Settings,
    export::{OutputFailed, Outputs, Statistics},
    kernel::{
        Kernel, KernelError,
        clock::WallClock,
        hooks::{self, Hook},
        nics,
        plan::Status,
    },
    options::{Sampling, Weight},
    parts::{Access, Loader, LoaderEnded},
    reader::Reader,
    requirements::Requirements,
    signals::{
        self, Grouping, OpenContext, SamplingController, SharedGrouping, Signal, SignalStatus,
        filter_updater::FilterUpdater,
        internal::{InternalTelemetry, State},
    },
    telemetry::{Readings, Resource, Snapshot, UnixNanos},
    watchdog::Watchdog,
    workloads::{self, Directory, Files, Following, Slot, Workloads},
};

/// From a signal's arrival to the process's end at most this long; delivery gets what detaching leaves.
const LAST_DELIVERY: Duration = Duration::from_millis(1500);

/// Why the sidecar cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing can be measured on this kernel.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The process cannot be told to stop.
    #[error("cannot listen for SIGINT and SIGTERM: {0}")]
    Signals(#[source] std::io::Error),
}

/// Why a sidecar ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An output failed.
    #[error(transparent)]
    Output(#[from] OutputFailed),
    /// The loader ended.
    #[error(transparent)]
    Loader(#[from] LoaderEnded),
    /// The loader did not respond in time.
    #[error("the loader does not respond: another process may have stopped it")]
    LoaderStopped,
}

/// A sidecar that listens.
pub struct Sidecar {
    kernel: Kernel,
    clock: WallClock,
    signals: Vec<(&'static str, Box<dyn Signal>)>,
    sampler: SamplingController,
    filter_updater: FilterUpdater,
    grouping: Option<SharedGrouping>,
    /// Where anything is measured by their stamps.
    nics: Option<nics::Following>,
    internal: InternalTelemetry,
    watchdog: Watchdog,
    workloads: Workloads,
    resource: Arc<Resource>,
    last_collect: Option<Duration>,
    stop: Stop,
    reader: Reader,
    /// The last field: once the others are dropped, the loader detaches the programs and ends.
    loader: Loader,
}

impl Sidecar {
    /// Attaches, and opens every wanted signal. One that cannot be opened is left out, and said so. `directory` knows
    /// containers' names. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where nothing can be measured.
    pub fn start(
        settings: &Settings,
        resource: Resource,
        access: Access,
        requirements: &Requirements,
        directory: Directory,
    ) -> Result<Self, StartError> {
        let Access { mut kernel, files, reader, loader } = access;
        // Before attaching, which takes seconds on slow machines: a signal meanwhile still ends the sidecar in order.
        let stop = Stop::listen()?;
        let start = UnixNanos::now();
        let mut clock = kernel.wall_clock()?;
        synchronize(&mut clock);
        // Workloads are known before the first packet is seen, and later cgroups arrive as events.
        let (of_cgroups, others): (Vec<&Hook>, _) =
            requirements.hooks().iter().partition(|hook| **hook == &hooks::CGROUP_CHANGE);
        kernel.serve(&of_cgroups)?;
        let workloads = follow(&mut kernel, requirements, &resource, files.clone(), directory, start);
        kernel.serve(&others)?;
        kernel.serve_functions()?;
        let grouping = grouping(&mut kernel, settings, requirements, start);
        let opening = OpenContext {
            kernel: &kernel,
            files: files.as_ref(),
            settings: &settings.signals,
            packets: &settings.packets,
            workloads: &workloads,
            grouping: grouping.as_ref(),
            start,
        };
        let mut opened = Vec::new();
        for entry in signals::enabled(&settings.signals) {
            match (entry.open)(&opening) {
                Ok(signal) => opened.push((entry.name, signal)),
                Err(error) => tracing::warn!("signal `{}` is off: {error}", entry.name),
            }
        }
        report(settings, &kernel);
        let samples = requirements.hooks().iter().any(|hook| hook.reads_timestamps);
        let sampling = if samples { settings.packets.sampling } else { Sampling::OneIn(Weight::ONE) };
        let sampler = SamplingController::new(kernel.sample(), sampling);
        let filter_updater =
            FilterUpdater::new(settings.packets.filter.clone(), kernel.filter_map(), files, &workloads);
        let nics = requirements.hooks().contains(&&hooks::DRIVER).then(|| kernel.follow_nics()).transpose()?;
        let internal = InternalTelemetry::new(start);
        Ok(Self {
            kernel,
            clock,
            signals: opened,
            sampler,
            filter_updater,
            grouping,
            nics,
            internal,
            watchdog: Watchdog::start(settings.interval.get()),
            workloads,
            resource: Arc::new(resource),
            last_collect: None,
            stop,
            reader,
            loader,
        })
    }

    /// Everything measured until now, with one timestamp.
    ///
    /// `delivered` is the time up to which every output has settled its snapshots.
    pub fn snapshot(&mut self, exports: &[Statistics], delivered: UnixNanos) -> Snapshot {
        let began = Instant::now();
        let rested = self.workloads.before(delivered);
        // Before another workload has one of them.
        if !rested.is_empty() {
            self.filter_updater.look(&self.workloads);
        }
        let mut grouping = self.grouping.as_ref().map(|grouping| grouping.borrow_mut());
        for slot in rested {
            self.signals.iter_mut().for_each(|(_, signal)| signal.forget(slot));
            grouping.iter_mut().for_each(|grouping| grouping.forget(slot));
        }
        let time = UnixNanos::now();
        let mut readings = Readings::default();
        if let Some(mut grouping) = grouping {
            grouping.look(time);
            readings.add(Slot::NODE, grouping.lost());
        }
        for (name, signal) in &mut self.signals {
            if let Err(error) = signal.read(&self.workloads, &mut readings) {
                tracing::warn!("signal `{name}` yields nothing this time: {error}");
            }
        }
        let deliveries: Vec<_> = exports.iter().map(|output| (output.output(), output.totals())).collect();
        let parts = [std::process::id(), self.loader.process(), self.reader.process()];
        let state = State {
            collect: self.last_collect,
            weight: self.sampler.weight(),
            outputs: &deliveries,
            losses: &self.workloads.losses(),
            processes: &parts,
            late_ticks: self.watchdog.late(),
        };
        for metric in self.internal.read(&self.kernel, &state) {
            readings.add(Slot::NODE, metric);
        }
        self.last_collect = Some(began.elapsed());
        let resources = readings.into_resources(|slot| self.resource_of(slot));
        let resources = resources.map(|(slot, metrics)| self.workloads.stage(slot, metrics)).collect();
        self.workloads.after(time);
        Snapshot { time, resources }
    }

    fn resource_of(&self, slot: Slot) -> Option<Arc<Resource>> {
        if slot == Slot::NODE { Some(Arc::clone(&self.resource)) } else { self.workloads.resource(slot) }
    }

    /// Publishes a snapshot at every tick, and a last one at the end: after the settings' duration, on SIGINT or SIGTERM,
    /// or when no output is left.
    ///
    /// # Errors
    /// If an output fails, or a part of the sidecar without which it cannot go on.
    pub async fn run(mut self, settings: &Settings, mut outputs: Outputs) -> Result<(), RunError> {
        let statistics = outputs.statistics();
        let end = settings.duration.as_ref().map(|span| tokio::time::Instant::now() + span.get());
        let mut ticks = tokio::time::interval(settings.interval.get());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        // The first tick comes at once.
        ticks.tick().await;
        loop {
            tokio::select! {
                biased;
                () = self.stop.wait(end) => break,
                ended = outputs.ended() => return Ok(ended?),
                ended = self.loader.ended() => return Err(ended.into()),
                stepped = self.clock.stepped() => match stepped {
                    Ok(()) => {
                        synchronize(&mut self.clock);
                        self.nics.iter_mut().for_each(nics::Following::stepped);
                    }
                    Err(error) => tracing::warn!("the wall clock is no longer watched: {error}"),
                },
                _ = ticks.tick() => {
                    synchronize(&mut self.clock);
                    let snapshot = Arc::new(self.snapshot(&statistics, outputs.delivered()));
                    outputs.publish(&snapshot);
                    self.watchdog.tick();
                    if !self.kernel.is_connected() {
                        return Err(RunError::LoaderStopped);
                    }
                }
                () = self.watchdog.due() => self.watchdog.feed(),
                () = self.workloads.changed() => {}
                () = read_clocks(&mut self.nics, &mut self.kernel) => {}
                () = self.filter_updater.due() => self.filter_updater.look(&self.workloads),
                () = self.sampler.changed() => {}
            }
        }
        let last = Arc::new(self.snapshot(&statistics, outputs.delivered()));
        // Detached before the last delivery, which may wait for a collector.
        drop(self);
        outputs.publish(&last);
        Ok(outputs.shutdown(LAST_DELIVERY).await?)
    }
}

/// Waits until NICs' clocks are to be read, and reads them; now and then it is looked for NICs. Never, where nothing is
/// measured by them. Cancel safe.
async fn read_clocks(nics: &mut Option<nics::Following>, kernel: &mut Kernel) {
    let Some(nics) = nics else { return std::future::pending().await };
    if !nics.read().await {
        return;
    }
    match kernel.search_nics() {
        Ok(found) => nics.follow(found),
        Err(error) => tracing::warn!("cannot follow the NICs that timestamp packets: {error}"),
    }
}

fn synchronize(clock: &mut WallClock) {
    if let Err(error) = clock.synchronize() {
        tracing::warn!("programs go on with the wall clock's last offset: {error}");
    }
}

/// How well everything is served: each signal, and that they are told apart by workload.
#[must_use]
pub fn statuses(settings: &Settings, kernel: &Kernel) -> Vec<SignalStatus> {
    let mut statuses = signals::statuses(&settings.signals, kernel);
    statuses.push(workloads::status(&settings.workloads, kernel));
    statuses
}

/// Logs the number of signals in each state.
fn report(settings: &Settings, kernel: &Kernel) {
    let statuses = statuses(settings, kernel);
    let enabled: Vec<_> = statuses.iter().filter(|status| status.enabled).collect();
    let counted = Status::ALL.into_iter().filter_map(|state| {
        let count = enabled.iter().filter(|status| status.status == state).count();
        (count > 0).then(|| format!("{count} {}", state.as_str()))
    });
    let counted = counted.collect::<Vec<_>>().join(", ");
    tracing::info!("measuring: {} signals: {counted}; run `undercurrent doctor` for details", enabled.len());
    for status in enabled.iter().filter(|status| !status.reasons.is_empty()) {
        tracing::debug!("{} is {}: {}", status.signal, status.status.as_str(), status.reasons.join("; "));
    }
}

/// Tells packets apart, where that is wanted of a signal that is on. Where it cannot be, the log says why.
fn grouping(
    kernel: &mut Kernel,
    settings: &Settings,
    requirements: &Requirements,
    start: UnixNanos,
) -> Option<SharedGrouping> {
    let limit = u16::try_from(requirements.sizing(0).groups()).ok().filter(|limit| *limit > 0)?;
    let opened = Grouping::open(kernel, settings.packets.group.by.clone(), limit, start);
    let opened = opened.inspect_err(|error| tracing::warn!("packets are told apart by workload alone: {error}"));
    opened.ok().map(|grouping| SharedGrouping::new(grouping.into()))
}

/// Follows workloads, where they are told apart. Where they cannot be, everything stands with the node, and the log says why.
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
        tracing::warn!("workloads are not told apart: {error}");
        Workloads::default()
    })
}

/// When to end.
struct Stop {
    interrupt: Notification,
    terminate: Notification,
}

impl Stop {
    fn listen() -> Result<Self, StartError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(StartError::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(StartError::Signals)?,
        })
    }

    async fn wait(&mut self, end: Option<tokio::time::Instant>) {
        let duration = async {
            match end {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = duration => {}
        }
    }
}
