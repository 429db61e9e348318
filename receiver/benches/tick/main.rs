//! Measures the cost of a tick on a large node: it reads the latency of many workloads from maps in the size for
//! many CPUs, and encodes it. Prints the time of each round, and the size of all maps on nodes of several sizes,
//! as one JSON object per line. `cargo xtask bench workloads` runs this and evaluates the output.

mod node;

use std::{collections::BTreeMap, hint::black_box, sync::Arc, time::Duration};

use clap::Parser;
use prost::Message as _;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use undercurrent::{
    export::{REQUEST_LIMIT, requests},
    kernel::memory::Sizing,
    signals::{
        Settings,
        energy::{Accounts, Amount, Basis, CpuUse, Domain, Origin},
        network_functions, planned_maps,
    },
    telemetry::{Attributes, Microjoules, Readings, Resource, Scale, Snapshot, UnixNanos},
    workloads::Slot,
};

use self::node::{CPUS, WORKLOADS};

/// Measures the time to read histograms and to encode them.
#[derive(Parser)]
struct Arguments {
    /// Rounds
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// A line of the output.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Tick(Tick),
    Memory(Memory),
    Energy(Division),
}

/// The CPU time of a division of energy, and of its points, in nanoseconds.
#[derive(Serialize)]
struct Division {
    workloads: u16,
    divide: u64,
    points: u64,
}

/// The CPU time of one tick in nanoseconds, and its amount of data.
#[derive(Serialize)]
struct Tick {
    cpus: usize,
    workloads: u16,
    /// Bytes of cells that the tick read.
    bytes: usize,
    points: u64,
    /// Time from cells to readings.
    read: u64,
    /// Time from readings to resources.
    group: u64,
    /// Time from resources to uncompressed protobuf.
    encode: u64,
    /// Bytes of protobuf.
    encoded: usize,
}

/// The size of all maps of one node in bytes.
#[derive(Serialize)]
struct Memory {
    cpus: usize,
    workloads: u16,
    scale: u8,
    bytes: usize,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    for workloads in [100, 256] {
        for cpus in [2, 16, 64] {
            for scale in (0..).map_while(Scale::new) {
                let samples = network_functions::ring_size(cpus);
                let sizing = Sizing { workloads: Some(workloads), samples, ..Sizing::new(cpus, scale) };
                let maps = planned_maps(&Settings::default());
                let bytes = maps.map(|(map, is_used)| map.size(&sizing, is_used).bytes()).sum();
                print(&Line::Memory(Memory { cpus, workloads, scale: scale.get(), bytes }))?;
            }
        }
    }
    for _ in 0..arguments.rounds {
        print(&Line::Energy(division()))?;
    }
    let (mut latency, bytes) = node::latency()?;
    let resources: Vec<_> = (0..Slot::FIRST.0 + WORKLOADS).map(resource).collect();
    let mut others = vec![0_u8; node::CACHES];
    for round in 0..arguments.rounds {
        // A sidecar's interval is long enough that caches lose the data of the last tick.
        others.fill(round as u8);
        black_box(&mut others);
        let (mut readings, begun) = (Readings::default(), cpu_time());
        latency.add_to(&mut readings, (0..WORKLOADS).map(|n| (Slot(Slot::FIRST.0 + n), UnixNanos(1))));
        let read = cpu_time();
        let resources = readings.into_resources(|slot| resources.get(usize::from(slot.0)).cloned());
        let snapshot = Snapshot { time: UnixNanos(2), resources: resources.map(|(_, metrics)| metrics).collect() };
        let grouped = cpu_time();
        let (mut points, mut encoded) = (0, 0);
        for part in requests(&snapshot, REQUEST_LIMIT) {
            points += part.points;
            encoded += black_box(part.request.encode_to_vec()).len();
        }
        let (encode, group, read) = (cpu_time() - grouped, grouped - read, read - begun);
        let [read, group, encode] = [read, group, encode].map(|time| time.as_nanos() as u64);
        print(&Line::Tick(Tick { cpus: CPUS, workloads: WORKLOADS, bytes, points, read, group, encode, encoded }))?;
    }
    Ok(())
}

/// Divides the energy of both domains over 1000 workloads.
fn division() -> Division {
    const MANY: u16 = 1000;
    let used = |n: u16| CpuUse { network: 1_000_000 + u64::from(n), compute: 7_000_000 * u64::from(n) };
    let uses: BTreeMap<Slot, CpuUse> = (0..MANY).map(|n| (Slot(Slot::FIRST.0 + n), used(n))).collect();
    let (mut accounts, begun) = (Accounts::default(), cpu_time());
    for domain in Domain::ALL {
        let (energy, idle) = (Microjoules(1_234_567_890), Microjoules(234_567_890));
        let amount = Amount { domain, origin: Origin::Rapl, basis: Basis::Cycles, energy, idle };
        accounts.divide(amount, &uses, |_| Some(UnixNanos(1)));
    }
    let divided = cpu_time();
    black_box(accounts.points().map(|(_, points)| points.len()).sum::<usize>());
    let (divide, points) = (divided - begun, cpu_time() - divided);
    let [divide, points] = [divide, points].map(|time| time.as_nanos() as u64);
    Division { workloads: MANY, divide, points }
}

fn print(line: &Line) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the resource of a container, with the number of attributes that is usual in Kubernetes.
fn resource(slot: u16) -> Arc<Resource> {
    let keys =
        ["host.name", "host.id", "host.arch", "os.type", "os.name", "os.version", "container.id", "container.name"];
    let more = ["container.image.name", "k8s.pod.uid", "k8s.pod.name", "k8s.namespace.name", "k8s.container.name"];
    let of = [&keys[..], &more[..], &["service.name", "service.instance.id"]].concat();
    let attributes = of.into_iter().fold(Attributes::new(), |attributes, key| {
        attributes.with(key, format!("{key} of the workload in slot {slot}"))
    });
    Arc::new(Resource { attributes })
}
