//! What a tick costs on a large node: reads latency of many workloads from maps as they are on many CPUs, and encodes it.
//! Prints what every round took, and what all maps take on nodes of several sizes, one JSON object a line. `cargo xtask
//! bench workloads` runs this and makes figures of it.

mod node;

use std::{hint::black_box, sync::Arc, time::Duration};

use clap::Parser;
use prost::Message as _;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use undercurrent::{
    export::{REQUEST_LIMIT, requests},
    kernel::{choices::Criteria, groups::GroupBy, memory::Sizing},
    signals::{Settings, planned_maps},
    telemetry::{Attributes, Readings, Resource, Scale, Snapshot, UnixNanos},
    workloads::Slot,
};

use self::node::{CPUS, WORKLOADS};

/// Times the reading of histograms and their encoding.
#[derive(Parser)]
struct Arguments {
    /// Rounds
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// `cargo bench` says so
    #[arg(long, hide = true)]
    bench: bool,
}

/// One line.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Tick(Tick),
    Memory(Memory),
}

/// What one tick took, in nanoseconds of CPU time, and how much it was about.
#[derive(Serialize)]
struct Tick {
    cpus: usize,
    workloads: u16,
    /// Bytes of cells that were read.
    bytes: usize,
    points: u64,
    /// From cells to readings.
    read: u64,
    /// From readings to resources.
    group: u64,
    /// From resources to protobuf, without compression.
    encode: u64,
    /// Bytes of protobuf.
    encoded: usize,
}

/// What all maps of one node take, in bytes.
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
                let sizing = Sizing {
                    cpus,
                    scale,
                    criteria: Criteria::default(),
                    group_by: GroupBy::default(),
                    workloads: Some(workloads),
                    functions: 0,
                };
                let maps = planned_maps(&Settings::default());
                let bytes = maps.map(|(map, is_used)| map.size(&sizing, is_used).bytes()).sum();
                print(&Line::Memory(Memory { cpus, workloads, scale: scale.get(), bytes }))?;
            }
        }
    }
    let (mut latency, bytes) = node::latency()?;
    let resources: Vec<_> = (0..Slot::FIRST.0 + WORKLOADS).map(resource).collect();
    let mut others = vec![0_u8; node::CACHES];
    for round in 0..arguments.rounds {
        // At the interval of a sidecar, nothing of the last tick is in a cache.
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

fn print(line: &Line) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A container's, with as many attributes as one has in Kubernetes.
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
