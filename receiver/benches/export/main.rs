//! Measures the delivery of a full snapshot of a large node: encoding, compression and sending to a collector in another process.
//! Prints one JSON object per line. `cargo xtask bench export` runs this and evaluates the output.

mod collector;
mod recorded;

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::net::TcpListener;
use undercurrent::{
    export::{
        Bus, Outputs,
        otlp::{self, COMPRESSION, ENDPOINT, FileSettings, Items, PROTOCOL, Settings},
    },
    telemetry::UnixNanos,
};

/// Measures the delivery of snapshots to a collector.
#[derive(Parser)]
struct Arguments {
    /// Snapshots for each protocol and compression
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Workloads on the node
    #[arg(long, default_value_t = 1000)]
    workloads: u32,
    /// Run as the collector
    #[arg(long, hide = true)]
    collect: bool,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// The delivery of one snapshot.
#[derive(Serialize)]
struct Delivery {
    workloads: u32,
    protocol: &'static str,
    compression: &'static str,
    points: u64,
    requests: u64,
    /// Bytes of all bodies.
    bytes: u64,
    /// CPU time of this process in nanoseconds.
    cpu: u64,
}

/// The collector in its own process. It ends on drop.
struct Collector {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    port: u16,
}

impl Collector {
    fn start() -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("the path of this program")?;
        let mut child = Command::new(own).arg("--collect").stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        Ok(Self { child, lines, port: line.trim().parse().context("the collector prints its port")? })
    }

    /// Returns the number of requests and the bytes of their bodies since the last call. The last request has arrived.
    fn received(&mut self, requests: u64) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for _ in 0..requests {
            let mut line = String::new();
            self.lines.read_line(&mut line)?;
            bytes += line.trim().parse::<u64>().context("the collector prints the length of each body")?;
        }
        Ok(bytes)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if arguments.collect {
        return runtime.block_on(collect());
    }
    for protocol in ["grpc", "http/protobuf"] {
        for compression in ["none", "gzip", "zstd"] {
            runtime.block_on(measure(&arguments, protocol, compression))?;
        }
    }
    Ok(())
}

/// Runs the collector: prints its port, and the length of each message.
async fn collect() -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?.port());
    collector::serve(listener, |_, length| println!("{length}")).await
}

/// Delivers snapshots one after another. The first one also connects, and is not printed.
async fn measure(arguments: &Arguments, protocol: &'static str, compression: &'static str) -> anyhow::Result<()> {
    let mut collector = Collector::start()?;
    let endpoint = format!("http://127.0.0.1:{}", collector.port);
    let last = |names: &[&'static str]| names.last().copied().unwrap_or_default();
    let lookup = |name: &'static str| {
        let value = match name {
            _ if name == last(&ENDPOINT) => endpoint.clone(),
            _ if name == last(&PROTOCOL) => protocol.to_owned(),
            _ if name == last(&COMPRESSION) => compression.to_owned(),
            _ => return None,
        };
        Some((name, value))
    };
    let settings = Settings::from_variables(Items::Metrics, lookup, &FileSettings::default())?;
    let bus = Bus::default();
    let (output, _) = otlp::open(&bus, settings, None)?;
    let outputs = Outputs::new(bus, vec![output]);
    let mut node = recorded::Node::new(arguments.workloads)?;
    for round in 0..=arguments.rounds {
        let snapshot = Arc::new(node.snapshot(UnixNanos((round + 1) * 10_000_000_000)));
        let requests = undercurrent::export::requests(&snapshot, undercurrent::export::REQUEST_LIMIT).count() as u64;
        let before = cpu_time();
        outputs.bus().publish(&snapshot);
        while outputs.delivered() < snapshot.time {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let cpu = (cpu_time() - before).as_nanos() as u64;
        let bytes = collector.received(requests)?;
        let (workloads, points) = (arguments.workloads, snapshot.points());
        if round > 0 {
            let line = Delivery { workloads, protocol, compression, points, requests, bytes, cpu };
            println!("{}", serde_json::to_string(&line)?);
        }
    }
    Ok(outputs.shutdown(Duration::from_secs(5)).await?)
}

/// Returns the CPU time of this process, in the kernel too.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
