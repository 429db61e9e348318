//! The running sidecar: it attaches programs, opens signals, takes a snapshot at every tick, and feeds the outputs.

mod control;
mod reload;
mod rotation;
mod start;
mod stop;
mod traces;

use std::{
    cell::OnceCell,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    config::{Run, Settings},
    export::{OutputFailed, Outputs, Statistics},
    kernel::{Kernel, KernelError, clock::WallClock, nics},
    options::Interval,
    outputs::RunningCollectors,
    packets::{FilterUpdater, SamplingController, SharedGrouping},
    parts::{LoaderEnded, Processes},
    process_usage::ProcessUsage,
    reader::{Foreign, Reader, usages_of_parts},
    signals::{
        SharedCpuTimes, Signal,
        internal::{InternalTelemetry, State},
        latency,
    },
    telemetry::{Readings, Resource, ResourceMetrics, Snapshot, UnixNanos},
    watchdog::Watchdog,
    workloads::{Slot, Workloads},
};

pub use self::{
    control::{Control, RunningControl},
    start::statuses,
    stop::idle,
};
use self::{
    reload::Reload,
    rotation::Rotation,
    stop::{Notice, wait_until},
    traces::Traces,
};

/// Time limit from a stop signal to the end of the last delivery, which gets the time that detaching leaves.
const LAST_DELIVERY: Duration = Duration::from_millis(1500);
/// Least time for the last delivery if detaching took long.
const LEAST_DELIVERY: Duration = Duration::from_millis(250);

/// A failure to start the sidecar.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel supports no measurement.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for SIGINT and SIGTERM: {0}")]
    Signals(#[source] std::io::Error),
    /// The endpoints cannot be watched.
    #[error("cannot answer requests: {0}")]
    Endpoints(#[source] std::io::Error),
    /// No thread can be started.
    #[error(
        "cannot start a thread: {0}; raise the limit of tasks (systemd: `TasksMax=`; Docker: `--pids-limit`; Kubernetes: \
         `podPidsLimit`)"
    )]
    Thread(#[source] std::io::Error),
}

/// A failure of a running sidecar.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An output failed.
    #[error(transparent)]
    Output(#[from] OutputFailed),
    /// The loader ended.
    #[error(transparent)]
    Loader(#[from] LoaderEnded),
    /// The run ended, and no output received a snapshot.
    #[error("delivered 0 of {published} snapshots ({}); the log has the reasons", outputs.join(", "))]
    NothingDelivered {
        /// Number of snapshots.
        published: u64,
        /// The outputs with the reasons of their failures.
        outputs: Vec<String>,
    },
    /// The loader did not respond in time.
    #[error("the loader does not respond: another process may have stopped it")]
    LoaderStopped,
}

/// A running sidecar with attached programs.
pub struct Sidecar {
    kernel: Kernel,
    clock: WallClock,
    signals: Vec<(&'static str, Box<dyn Signal>)>,
    /// CPU times that several signals share, if any of them is open.
    cpu_times: OnceCell<SharedCpuTimes>,
    sampler: SamplingController,
    filter_updater: FilterUpdater,
    grouping: Option<SharedGrouping>,
    traces: Traces,
    /// `None` if no signal uses the receive timestamps of NICs.
    nics: Option<nics::Following>,
    internal: InternalTelemetry,
    watchdog: Watchdog,
    workloads: Workloads,
    resource: Arc<Resource>,
    /// Start time of the measurements.
    start: UnixNanos,
    last_collect: Option<Duration>,
    reader: Reader,
    writer: Option<Foreign>,
    /// The last field, because fields drop in order. After the others are dropped, the loader detaches the programs and
    /// exits.
    processes: Processes,
}

impl Sidecar {
    /// Returns the processes of the sidecar, the worker first, with their CPU time and memory.
    fn usages(&self) -> Vec<(u32, Option<ProcessUsage>)> {
        let parts: Vec<u32> = self.processes.numbers().chain([self.reader.process()]).collect();
        let read = usages_of_parts(&self.reader, &parts).unwrap_or_else(|error| {
            tracing::debug!("cannot read the CPU time and the memory of the other parts: {error}");
            vec![None; parts.len()]
        });
        [(std::process::id(), ProcessUsage::own().ok())].into_iter().chain(parts.into_iter().zip(read)).collect()
    }

    /// Returns the cumulative measurements with one timestamp.
    ///
    /// `delivered` is the time up to which every output has settled its snapshots.
    pub fn snapshot(&mut self, exports: &[Statistics], delivered: UnixNanos) -> Snapshot {
        let _tick = tracing::debug_span!("tick").entered();
        let began = Instant::now();
        let rested = self.workloads.before(delivered);
        // The filter drops released slots before another workload receives them.
        if !rested.is_empty() {
            self.filter_updater.refresh(&self.workloads);
        }
        let mut grouping = self.grouping.as_ref().map(|grouping| grouping.borrow_mut());
        for slot in rested {
            self.signals.iter_mut().for_each(|(_, signal)| signal.forget(slot));
            grouping.iter_mut().for_each(|grouping| grouping.forget(slot));
        }
        let time = UnixNanos::now();
        if let Some(times) = self.cpu_times.get() {
            times.borrow_mut().expire();
        }
        let mut readings = Readings::default();
        if let Some(mut grouping) = grouping {
            grouping.refresh(time);
            readings.add(Slot::NODE, latency::lost_groups(&grouping, self.start));
        }
        for (name, signal) in &mut self.signals {
            if let Err(error) = signal.read(&self.workloads, &mut readings) {
                tracing::warn!("cannot read signal `{name}`; this snapshot does not contain it: {error}");
            }
        }
        self.signals.iter_mut().for_each(|(_, signal)| signal.adapt(&readings));
        let deliveries: Vec<_> = exports.iter().map(Statistics::totals).collect();
        let state = State {
            collect: self.last_collect,
            weight: self.sampler.weight(),
            outputs: &deliveries,
            losses: &self.workloads.losses(),
            processes: &self.usages(),
            late_ticks: self.watchdog.late(),
        };
        for metric in self.internal.read(&self.kernel, &state) {
            readings.add(Slot::NODE, metric);
        }
        self.traces.attach(&mut readings);
        self.last_collect = Some(began.elapsed());
        let resources = readings.into_resources(|slot| self.resource_of(slot));
        let select = |(slot, mut metrics): (Slot, ResourceMetrics)| {
            if slot == Slot::NODE {
                self.internal.add_total(&mut metrics.metrics);
            }
            self.internal.select(&mut metrics.metrics);
            self.workloads.stage(slot, metrics)
        };
        let resources = resources.map(select).collect();
        self.workloads.after(time);
        Snapshot { time, resources }
    }

    /// Reads the signals that cannot wait for the next snapshot.
    fn sample(&mut self) {
        let now = Instant::now();
        let signals = self.signals.iter_mut().map(|(_, signal)| signal);
        signals.filter(|signal| signal.due().is_some_and(|due| due <= now)).for_each(|signal| signal.sample());
    }

    /// Passes the spans since the last call to the outputs.
    fn publish_spans(&mut self, outputs: &Outputs) {
        let traced = self.signals.iter_mut().flat_map(|(_, signal)| signal.spans()).collect();
        let (node, workloads) = (&self.resource, &self.workloads);
        self.traces.publish(traced, outputs.bus(), |slot| resource_of(slot, node, workloads));
    }

    fn resource_of(&self, slot: Slot) -> Option<Arc<Resource>> {
        resource_of(slot, &self.resource, &self.workloads)
    }

    /// Publishes a snapshot at every tick and a last one at the end. The run ends after the configured duration, on
    /// SIGINT or SIGTERM, or if no output is left.
    ///
    /// # Errors
    /// If an output or the loader process fails.
    pub async fn run(
        mut self,
        mut settings: Settings,
        run: Run,
        mut outputs: Outputs,
        mut collectors: Option<RunningCollectors>,
        control: &mut RunningControl,
    ) -> Result<(), RunError> {
        control.begin();
        let statistics = outputs.statistics();
        let mut rotation = Rotation::start(outputs.files(), self.writer.clone(), settings.interval.get());
        let mut reload = Reload::new(run, self.reader.foreign());
        let mut published = 0;
        let end = settings.duration.as_ref().map(|span| tokio::time::Instant::now() + span.get());
        let mut ticks = ticks(settings.interval);
        let notice = loop {
            let due = self.signals.iter().filter_map(|(_, signal)| signal.due()).min();
            tokio::select! {
                biased;
                delivered = control.notice() => match delivered.notice {
                    Notice::End => break Some(delivered),
                    Notice::Hangup => {
                        let files = if rotation.has_files() { "; opening the output files again" } else { "" };
                        match reload.file() {
                            Some(file) => tracing::info!("SIGHUP: reloading {}{files}", file.display()),
                            None => tracing::info!("SIGHUP: there is no configuration file to reload{files}"),
                        }
                        reload.begin();
                        rotation.check();
                    }
                },
                loaded = reload.loaded() => {
                    let before = settings.interval;
                    self.reload(loaded, &mut settings, collectors.as_mut());
                    let interval = settings.interval;
                    if interval != before {
                        ticks = self::ticks(interval);
                        self.watchdog.set_interval(interval.get());
                        rotation = Rotation::start(outputs.files(), self.writer.clone(), interval.get());
                    }
                }
                () = wait_until(end) => break None,
                ended = outputs.wait_for_end() => return Ok(ended?),
                ended = self.processes.ended() => return Err(ended.into()),
                stepped = self.clock.stepped() => match stepped {
                    Ok(()) => {
                        synchronize(&mut self.clock);
                        self.nics.iter_mut().for_each(nics::Following::stepped);
                    }
                    Err(error) => tracing::warn!("cannot watch the wall clock for steps any more: {error}"),
                },
                _ = ticks.tick() => {
                    synchronize(&mut self.clock);
                    let snapshot = Arc::new(self.snapshot(&statistics, outputs.delivered()));
                    outputs.bus().publish(&snapshot);
                    published += 1;
                    self.watchdog.tick();
                    if !self.kernel.is_connected() {
                        return Err(self.processes.loader_ended().map_or(RunError::LoaderStopped, RunError::from));
                    }
                }
                () = self.traces.due() => self.publish_spans(&outputs),
                () = read_clocks(&mut self.nics, &mut self.kernel) => {}
                () = self.filter_updater.due() => self.filter_updater.refresh(&self.workloads),
                () = self.sampler.changed() => {}
                () = wait_until(due.map(Into::into)) => self.sample(),
                // Last, because cgroups that come and go without end would leave the others no turn.
                () = self.workloads.changed() => {}
            }
        };
        let stopped = Instant::now();
        self.publish_spans(&outputs);
        let last = Arc::new(self.snapshot(&statistics, outputs.delivered()));
        // The programs detach before the last delivery, which may wait for a collector.
        drop(self);
        outputs.bus().publish(&last);
        // From here on, nothing blocks.
        drop(notice);
        let running: Vec<_> = outputs.statistics().into_iter().filter(|output| !output.is_read()).collect();
        let left = LAST_DELIVERY.saturating_sub(stopped.elapsed()).max(LEAST_DELIVERY);
        outputs.shutdown(left).await?;
        summarize(&running, published + 1)
    }
}

/// Returns the ticks of an interval. The first one comes after the interval.
fn ticks(interval: Interval) -> tokio::time::Interval {
    let period = interval.get();
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    ticks
}

fn resource_of(slot: Slot, node: &Arc<Resource>, workloads: &Workloads) -> Option<Arc<Resource>> {
    if slot == Slot::NODE { Some(Arc::clone(node)) } else { workloads.resource(slot) }
}

/// Logs the number of delivered snapshots of each output.
///
/// # Errors
/// If no snapshot was delivered.
fn summarize(outputs: &[Statistics], published: u64) -> Result<(), RunError> {
    let mut without = Vec::new();
    for output in outputs {
        let (output, totals) = (output.output(), output.totals());
        let delivered = totals.snapshots(None);
        tracing::info!("delivered {delivered} of {published} snapshots to output `{output}`");
        if totals.points(None) == 0 {
            let reasons: Vec<&str> = totals.exports.into_keys().flatten().collect();
            without.push(format!(
                "{output}: {}",
                if reasons.is_empty() { "no answer".to_owned() } else { reasons.join(", ") }
            ));
        }
    }
    let nothing = !outputs.is_empty() && without.len() == outputs.len();
    if nothing { Err(RunError::NothingDelivered { published, outputs: without }) } else { Ok(()) }
}

/// Waits for the next reading of the NIC clocks and performs it. Rescans the NICs from time to time. Never completes if
/// no signal uses NIC timestamps. Cancel safe.
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
        tracing::warn!("cannot synchronize the wall clock; using its last offset: {error}");
    }
}
