//! The sidecar at work: kernel and signals opened, a snapshot at every tick, outputs fed.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use bytesize::ByteSize;
use tokio::signal::unix::{Signal as Notification, SignalKind, signal};

use crate::{
    config::{Means, MemoryLimit, Sampling, Settings, Weight},
    export::{Outputs, Statistics},
    kernel::{
        Kernel, KernelError, Request, Types,
        cards::{self, Found},
        choices::Criteria,
        clock::WallClock,
        hooks::{self, Hook},
        host::Host,
        memory::{Grouping as Groups, Sizing},
        object::Ownership,
        plan::Status,
    },
    privileges::{Privileges, ReadError as PrivilegesError, Task, Unprivileged},
    signals::{
        self, Grouping, Opening, Shared, Signal, SignalStatus, Thinning,
        filtering::{self, Filtering},
        itself::Itself,
    },
    telemetry::{Readings, Resource, Scale, Snapshot, UnixNanos},
    workloads::{self, Directory, Following, Slot, Workloads},
};

/// From a signal's arrival to the process's end at most this long; delivery gets what detaching leaves.
const LAST_DELIVERY: Duration = Duration::from_millis(1500);

/// Why the sidecar cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Capabilities are missing.
    #[error(transparent)]
    Unprivileged(#[from] Unprivileged),
    /// Capabilities cannot be read.
    #[error(transparent)]
    Privileges(#[from] PrivilegesError),
    /// Nothing can be measured on this kernel.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The maps would be too large.
    #[error(
        "the enabled signals need {} of kernel maps on {cpus} CPUs, and `memory_limit` is {}: raise it, or switch signals \
         off; `undercurrent doctor` lists the maps",
        ByteSize(*needed as u64).display().iec(),
        ByteSize(*limit).display().iec()
    )]
    Memory {
        /// Bytes that the maps take.
        needed: usize,
        /// Bytes that they may take.
        limit: u64,
        /// Possible CPUs.
        cpus: usize,
    },
    /// The process cannot be told to stop.
    #[error("cannot listen for SIGINT and SIGTERM: {0}")]
    Signals(#[source] std::io::Error),
}

/// What a configuration wants of a kernel.
pub struct Wanted {
    signals: Vec<&'static str>,
    hooks: Vec<&'static Hook>,
    functions: Vec<String>,
    scale: Scale,
    criteria: Criteria,
    groups: Groups,
    avoid: Vec<Means>,
    workloads: Option<(Ownership, u16)>,
    excludes_blocked: bool,
    /// Layers of the way out, as programs know them.
    transmit: u32,
}

impl Wanted {
    /// What settings want, where owners are found in some way or cannot be.
    #[must_use]
    pub fn of(settings: &Settings, ownership: Option<Ownership>) -> Self {
        let workloads = ownership.filter(|_| settings.workloads.enabled);
        let mut hooks = signals::hooks(&settings.signals);
        hooks.extend(workloads.into_iter().flat_map(workloads::hooks));
        Self {
            signals: signals::wanted(&settings.signals).map(|entry| entry.name).collect(),
            hooks,
            functions: signals::functions(&settings.signals).map(str::to_owned).collect(),
            scale: settings.signals.latency.scale,
            criteria: filtering::criteria(&settings.signals.latency.filter, settings.workloads.limit),
            groups: groups(settings),
            avoid: settings.avoid.clone(),
            workloads: workloads.map(|ownership| (ownership, settings.workloads.limit)),
            excludes_blocked: settings.signals.latency.excludes_blocked(),
            transmit: settings.signals.transmit.layers.bits(),
        }
    }

    /// What decides how large maps are on a machine of so many CPUs.
    #[must_use]
    pub fn sizing(&self, cpus: usize) -> Sizing<'_> {
        let workloads = self.workloads.map(|(_, limit)| limit);
        let (signals, functions) = (&self.signals, self.functions.len());
        let (scale, criteria, grouping) = (self.scale, self.criteria, self.groups);
        Sizing { cpus, scale, signals, criteria, grouping, workloads, functions }
    }

    /// The hooks to serve.
    #[must_use]
    pub fn hooks(&self) -> &[&'static Hook] {
        &self.hooks
    }

    /// Refuses maps that are larger than a limit.
    ///
    /// # Errors
    /// [`StartError::Memory`].
    pub fn within_memory(&self, limit: MemoryLimit, cpus: usize) -> Result<(), StartError> {
        let (needed, limit) = (self.sizing(cpus).bytes(), limit.bytes());
        if needed as u64 > limit { Err(StartError::Memory { needed, limit, cpus }) } else { Ok(()) }
    }

    /// Loads what the hooks need.
    ///
    /// # Errors
    /// Where nothing can be measured.
    pub fn load(&self, host: Host) -> Result<(Kernel, Types), KernelError> {
        let request = Request {
            sizing: self.sizing(host.cpus),
            hooks: &self.hooks,
            functions: &self.functions,
            ownership: self.workloads.map(|(ownership, _)| ownership),
            avoid: &self.avoid,
            excludes_blocked: self.excludes_blocked,
            transmit: self.transmit,
        };
        Kernel::load(host, &request)
    }

    /// Loads what the hooks need, and serves them all.
    ///
    /// # Errors
    /// Where nothing can be measured.
    pub fn listen(&self, host: Host) -> Result<Kernel, KernelError> {
        let (mut kernel, types) = self.load(host)?;
        kernel.serve(&types, &self.hooks);
        kernel.serve_functions(&types);
        Ok(kernel)
    }
}

/// Looks at the host, with what this process lacks for attaching.
///
/// # Errors
/// Where this process's capabilities cannot be read.
pub fn host() -> Result<(Host, Privileges), PrivilegesError> {
    let privileges = Privileges::current()?;
    let lacks = privileges.lacks(&[Task::LoadTracing, Task::AttachCgroup]);
    let mut missing: Vec<String> = lacks.iter().flat_map(|lack| &lack.missing).map(ToString::to_string).collect();
    missing.sort();
    missing.dedup();
    Ok((Host::probe(missing), privileges))
}

/// Refuses what this process may not do, or may not on this host, before anything is touched.
///
/// # Errors
/// Where capabilities are missing, or maps would be larger than the settings allow.
pub fn permitted(settings: &Settings) -> Result<(Host, Wanted), StartError> {
    let (host, privileges) = host()?;
    let wanted = Wanted::of(settings, host.ownership());
    if !wanted.hooks.is_empty() {
        privileges.require(&[Task::LoadTracing])?;
    }
    wanted.within_memory(settings.memory_limit, host.cpus)?;
    Ok((host, wanted))
}

/// A sidecar that listens.
pub struct Sidecar {
    kernel: Kernel,
    clock: WallClock,
    signals: Vec<(&'static str, Box<dyn Signal>)>,
    thinning: Thinning,
    filtering: Filtering,
    grouping: Option<Shared>,
    /// Where anything is measured by their stamps.
    cards: Option<cards::Following>,
    itself: Itself,
    workloads: Workloads,
    resource: Arc<Resource>,
    last_collect: Option<Duration>,
    stop: Stop,
}

impl Sidecar {
    /// Attaches, and opens every wanted signal. One that cannot be opened is left out, and said so. `directory` knows
    /// containers' names. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where nothing can be measured.
    pub fn start(settings: &Settings, resource: Resource, directory: Directory) -> Result<Self, StartError> {
        let (host, wanted) = permitted(settings)?;
        // Before attaching, which takes seconds on slow machines: whoever ends the sidecar meanwhile gets an orderly end.
        let stop = Stop::listen()?;
        let start = UnixNanos::now();
        let (mut kernel, types) = wanted.load(host)?;
        let mut clock = kernel.wall_clock()?;
        synchronize(&mut clock);
        // Workloads are known before the first packet is seen, and cgroups that come meanwhile are told of.
        let (of_cgroups, others): (Vec<&Hook>, _) =
            wanted.hooks.iter().partition(|hook| **hook == &hooks::CGROUP_CHANGE);
        kernel.serve(&types, &of_cgroups);
        let workloads = follow(&mut kernel, &wanted, &resource, directory, start);
        kernel.serve(&types, &others);
        kernel.serve_functions(&types);
        drop(types);
        let grouping = grouping(&mut kernel, settings, &wanted, start);
        let (grouped, settings_of) = (grouping.as_ref(), &settings.signals);
        let opening =
            Opening { kernel: &kernel, settings: settings_of, workloads: &workloads, grouping: grouped, start };
        let mut opened = Vec::new();
        for entry in signals::wanted(&settings.signals) {
            match (entry.open)(&opening) {
                Ok(signal) => opened.push((entry.name, signal)),
                Err(error) => tracing::warn!("signal `{}` is off: {error}", entry.name),
            }
        }
        report(settings, &kernel);
        let samples = wanted.hooks.iter().any(|hook| hook.reads_stamps);
        let sampling = if samples { settings.signals.latency.sampling } else { Sampling::OneIn(Weight::ONE) };
        let thinning = Thinning::new(kernel.sample()?, sampling);
        let filtering = Filtering::new(settings.signals.latency.filter.clone(), kernel.choices()?, &workloads);
        let cards = wanted.hooks.contains(&&hooks::DRIVER).then(|| kernel.follow_cards()).transpose()?;
        let itself = Itself::new(start);
        Ok(Self {
            kernel,
            clock,
            signals: opened,
            thinning,
            filtering,
            grouping,
            cards,
            itself,
            workloads,
            resource: Arc::new(resource),
            last_collect: None,
            stop,
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
            self.filtering.look(&self.workloads);
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
        let weight = self.thinning.weight();
        for metric in self.itself.read(&self.kernel, self.last_collect, weight, &deliveries, &self.workloads.losses()) {
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
    pub async fn run(mut self, settings: &Settings, mut outputs: Outputs) {
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
                () = outputs.ended() => return,
                stepped = self.clock.stepped() => match stepped {
                    Ok(()) => {
                        synchronize(&mut self.clock);
                        self.cards.iter_mut().for_each(cards::Following::stepped);
                    }
                    Err(error) => tracing::warn!("the wall clock is no longer watched: {error}"),
                },
                _ = ticks.tick() => {
                    synchronize(&mut self.clock);
                    let snapshot = Arc::new(self.snapshot(&statistics, outputs.delivered()));
                    if outputs.publish(&snapshot) == ControlFlow::Break(()) {
                        return;
                    }
                }
                () = self.workloads.changed() => {}
                () = read_clocks(&mut self.cards, &mut self.kernel) => {}
                () = self.filtering.due() => self.filtering.look(&self.workloads),
                () = self.thinning.changed() => {}
            }
        }
        let last = Arc::new(self.snapshot(&statistics, outputs.delivered()));
        // Detached before the last delivery, which may wait for a collector.
        drop(self);
        let _ = outputs.publish(&last);
        outputs.shutdown(LAST_DELIVERY).await;
    }
}

/// Waits until cards' clocks are to be read, and reads them; now and then it is looked for cards. Never, where nothing is
/// measured by them. Cancel safe.
async fn read_clocks(cards: &mut Option<cards::Following>, kernel: &mut Kernel) {
    let Some(cards) = cards else { return std::future::pending().await };
    if !cards.read().await {
        return;
    }
    let found = Found::now();
    cards.follow(&found);
    if let Err(error) = kernel.note_cards(found) {
        tracing::warn!("stamps of network cards are not measured: {error}");
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

/// One line on how well everything is served.
fn report(settings: &Settings, kernel: &Kernel) {
    let statuses = statuses(settings, kernel);
    let word = |status: &SignalStatus| match (status.enabled, status.status) {
        (false, _) => format!("{} off", status.signal),
        (true, Status::Whole) => format!("{} whole", status.signal),
        (true, other) => format!("{} {} ({})", status.signal, other.as_str(), status.reasons.join("; ")),
    };
    let line = statuses.iter().map(word).collect::<Vec<_>>().join(", ");
    tracing::info!("measuring: {line}; `undercurrent doctor` says more");
}

/// What settings want packets told apart by.
fn groups(settings: &Settings) -> Groups {
    let group = &settings.signals.latency.group;
    Groups::by(group.by.iter(), group.limit.get())
}

/// Tells packets apart, where that is wanted of a signal that is on. Where it cannot be, the log says why.
fn grouping(kernel: &mut Kernel, settings: &Settings, wanted: &Wanted, start: UnixNanos) -> Option<Shared> {
    let limit = u16::try_from(wanted.sizing(0).groups()).ok().filter(|limit| *limit > 0)?;
    let opened = Grouping::open(kernel, settings.signals.latency.group.by.clone(), limit, start);
    let opened = opened.inspect_err(|error| tracing::warn!("packets are told apart by workload alone: {error}"));
    opened.ok().map(|grouping| Shared::new(grouping.into()))
}

/// Follows workloads, where they are told apart. Where they cannot be, everything stands with the node, and the log says why.
fn follow(kernel: &mut Kernel, wanted: &Wanted, node: &Resource, directory: Directory, start: UnixNanos) -> Workloads {
    let (Some((_, limit)), Some(hierarchy)) = (wanted.workloads, kernel.host().hierarchy.clone()) else {
        return Workloads::default();
    };
    let node = node.attributes.clone();
    let following = Following { hierarchy, directory, node, limit, start };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{File, Flags};

    #[test]
    fn maps_larger_than_the_limit_are_refused() {
        let file = File::parse("config.yaml".as_ref(), b"memory_limit: 1MiB").expect("a configuration");
        let (settings, _) = Settings::resolve(Flags::default(), &|_| None, file);
        let wanted = Wanted::of(&settings, None);
        wanted.within_memory(settings.memory_limit, 2).expect("room");
        let refusal = wanted.within_memory(settings.memory_limit, 256).expect_err("refused").to_string();
        for words in
            ["on 256 CPUs", "`memory_limit` is 1.0 MiB", "raise it", "switch signals off", "undercurrent doctor"]
        {
            assert!(refusal.contains(words), "{words} in {refusal}");
        }
    }
}
