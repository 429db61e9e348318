//! Measures the cost of the programs, compared with other programs on their hooks. It sends traffic in rounds, and
//! prints the kernel's counts as one JSON object per round. `cargo xtask bench hooks` runs this on the host and in
//! virtual machines, and evaluates the output.

mod baseline;
mod callchains;
mod other;
mod report;
mod stand_in;
mod wire;

use std::{
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::atomic::Ordering,
};

use anyhow::Context as _;
use aya::sys::{Stats, enable_stats};
use clap::Parser;
use undercurrent::{
    config::{File, Flags, Settings},
    kernel::{Kernel, counters::Events},
    options::{AttachKind, Level},
    requirements::{self, Requirements},
    signals::{Settings as Signals, network_cpu, processor},
    workloads::OWNERS_MAP,
};
use undercurrent_ebpf::abi::workload::{NAMESPACE, Slot, entry, indices};

use self::{
    baseline::Baseline,
    other::Other,
    report::{Handlers, Order, Round},
    wire::{Traffic, Wire},
};

/// Runs programs under traffic, and prints the kernel's counts.
#[derive(Parser)]
struct Arguments {
    /// Rounds of each kind of traffic, for each set of handlers and each order of attachment
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Requests in a round, each with its reply
    #[arg(long, default_value_t = 200)]
    requests: u32,
    /// Handlers of the sidecar's programs, and the programs to compare with (repeatable)
    #[arg(long, value_enum, default_values_t = Handlers::ALL)]
    handlers: Vec<Handlers>,
    /// Kinds of attachment to avoid (repeatable)
    #[arg(long, value_name = "MEANS")]
    avoid: Vec<AttachKind>,
    /// Compare the sampling program with callchains of the kernel's perf subsystem
    #[arg(long)]
    callchains: bool,
    /// Attach empty programs in place of the sidecar's programs for this configuration, and stay until a signal;
    /// measures nothing
    #[arg(long, value_name = "FILE")]
    stand_in: Option<PathBuf>,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(configuration) = &arguments.stand_in {
        return stand_in::stay(configuration);
    }
    // The kernel counts runs while this descriptor is open.
    let _counting =
        enable_stats(Stats::RunTime).context("the kernel does not count programs' runs for this process")?;
    let mut wire = Wire::open()?;
    if arguments.callchains {
        return callchains::compare(&mut wire, arguments.rounds, arguments.requests);
    }
    for handlers in &arguments.handlers {
        for order in Order::ALL {
            measure(&arguments, &mut wire, *handlers, order)?;
        }
    }
    Ok(())
}

fn measure(arguments: &Arguments, wire: &mut Wire, handlers: Handlers, order: Order) -> anyhow::Result<()> {
    let (kernel, other) = attach(&settings(handlers, &arguments.avoid), handlers, order, wire)?;
    // The first runs fill caches, and the kernel enables timestamps some milliseconds after the request.
    let traffics: Vec<Traffic> = Traffic::ALL.into_iter().filter(|traffic| handlers.hears(*traffic)).collect();
    traffics.iter().try_for_each(|traffic| wire.exchange(*traffic, arguments.requests))?;
    let mut lines = Vec::new();
    for _ in 0..arguments.rounds {
        for &traffic in &traffics {
            let before = report::counts(&kernel, &other);
            wire.exchange(traffic, arguments.requests)?;
            let programs = report::difference(before, report::counts(&kernel, &other));
            let messages = arguments.requests * 2;
            serde_json::to_writer(&mut lines, &Round { handlers, order, traffic, messages, programs })?;
            lines.push(b'\n');
        }
    }
    // After all measurements, because output can cause traffic too.
    io::stdout().write_all(&lines).context("cannot write")
}

/// Attaches the sidecar's programs and the others. The kernel runs programs in the order of attachment.
fn attach(settings: &Settings, handlers: Handlers, order: Order, wire: &Wire) -> anyhow::Result<(Kernel, Other)> {
    let (host, _) = requirements::host()?;
    let requirements = Requirements::new(settings, handlers.ownership());
    let product = || {
        let kernel = requirements.listen(host.clone())?;
        kernel.sample().set(handlers.weight())?;
        own(&kernel, wire)?;
        anyhow::Ok(kernel)
    };
    let other = || match handlers {
        Handlers::Attribution | Handlers::AttributionByCpu => {
            Ok(Other::Product(Box::new(Requirements::new(settings, None).listen(host.clone())?)))
        }
        _ => Baseline::with_clock(&host, requirements.hooks(), &settings.avoid).map(Other::Empty),
    };
    Ok(match order {
        Order::ProductFirst => (product()?, other()?),
        Order::OtherFirst => {
            let other = other()?;
            (product()?, other)
        }
    })
}

/// Attributes all packets of this process and its namespaces to one workload.
fn own(kernel: &Kernel, wire: &Wire) -> anyhow::Result<()> {
    if !kernel.by_workload() {
        return Ok(());
    }
    let owners = kernel.words(&OWNERS_MAP)?;
    let entries = owners.slice(0..owners.count());
    let cgroups = [cgroup("/sys/fs/cgroup"), cgroup("/sys/fs/cgroup/unified"), cgroup("/sys/fs/cgroup/cpu")];
    let namespaces = wire.namespaces().map(|inode| NAMESPACE | inode);
    for key in cgroups.into_iter().flatten().chain(namespaces) {
        let [better, other] = indices(key).map(|place| &entries[place as usize]);
        let place = if [0, entry(key, Slot::FIRST)].contains(&better.load(Ordering::Relaxed)) { better } else { other };
        place.store(entry(key, Slot::FIRST), Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the id of a mounted hierarchy's root, which is the cgroup of this process.
fn cgroup(root: &str) -> Option<u64> {
    Some(std::fs::metadata(root).ok()?.ino())
}

/// Returns the default settings with all or some of the signals.
fn settings(handlers: Handlers, avoid: &[AttachKind]) -> Settings {
    let flags = Flags { avoid: avoid.to_vec(), level: Some(Level::Detailed), ..Flags::default() };
    let (mut settings, _) = Settings::resolve(flags, &|_| None, File::default());
    choose(handlers, &mut settings.signals);
    settings
}

/// Enables all or some of the signals.
fn choose(handlers: Handlers, signals: &mut Signals) {
    if handlers == Handlers::CpuTime {
        signals.disable_all();
        signals.network_cpu = network_cpu::Settings::complete();
        signals.network_functions.enabled = true;
        return;
    }
    if handlers.divides_energy() {
        signals.disable_all();
        signals.network_cpu.enabled = true;
        signals.energy.enabled = true;
        signals.processor = processor::Settings { enabled: true, events: Events::Software, ..Default::default() };
        if handlers == Handlers::EnergyByCycles {
            signals.processor.counters.clear();
        }
        return;
    }
    let waits = handlers.waits();
    signals.softirq_wait.enabled = Some(waits);
    signals.receive_wait.enabled = waits;
    signals.slow_packets.enabled = handlers.selects_slow();
    // These signals use hooks of the layers.
    signals.tcp_rtt.enabled = waits;
    signals.receive_segments.enabled = waits;
}
