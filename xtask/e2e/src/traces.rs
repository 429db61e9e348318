//! An HTTP server and a client of the official OpenTelemetry SDK, in two network namespaces. The server reads one request in a hundred
//! late; the spans of these requests arrive in Jaeger through a collector, inside the traces of the SDK.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use xtask_common::{hash, machine, process};
use xtask_e2e::{
    collector::running::Collector,
    jaeger::running::{Jaeger, Span, Trace},
};

use crate::require_root;

/// The delay of late reads in `app.py`.
const LATE: Duration = Duration::from_millis(150);
const REQUESTS: usize = 300;
/// Late reads among the requests.
const SLOW: usize = 3;
/// The accepted difference between the SDK's times and the kernel's. Jaeger's times are in microseconds.
const PRECISION: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the scenario over both IP versions.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    let python = python()?;
    for (version, addresses) in
        [("ipv4", ["10.78.0.1/24", "10.78.0.2/24"]), ("ipv6", ["fd00:78::1/64", "fd00:78::2/64"])]
    {
        let traces = over(sidecar, &python, addresses).with_context(|| format!("over {version}"))?;
        for trace in &traces {
            check(trace, version).with_context(|| format!("{trace:#?}"))?;
        }
        println!("e2e traces: {} slow requests over {version} have their packets in Jaeger", traces.len());
        traces.first().iter().for_each(|trace| print(trace));
    }
    Ok(())
}

/// Returns the traces of late requests.
fn over(sidecar: &Path, python: &Path, addresses: [&str; 2]) -> anyhow::Result<Vec<Trace>> {
    let jaeger = Jaeger::start()?;
    let collector = Collector::forward_traces_to(&jaeger.endpoint())?;
    let wire = Wire::new(addresses)?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, "signals: {slow_packets: {threshold: 100ms, uniform_share: none}}\n")?;
    let mut running = Command::new(sidecar);
    running.args(["run", "--output", "otlp", "--interval", "1s", "--sampling", "all", "--config"]).arg(&config);
    running.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    let _sidecar = Running::start(&mut running, " signals: ")?;
    let address = addresses[1].split('/').next().unwrap_or_default();
    let app = |role: &str, namespace: &str| {
        let mut app = Command::new(python);
        app.arg(machine::workspace().join("xtask/e2e/traces/app.py")).args([role, namespace, address, "8078"]);
        app.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.http());
        app
    };
    let _server = Running::start(&mut app("server", &wire.names[1]), "listening")?;
    machine::output(app("client", &wire.names[0]).arg(REQUESTS.to_string()))?;
    let mut found = Vec::new();
    process::wait_for("the slow packets in Jaeger", PATIENCE, || {
        found = jaeger.traces("client", LATE)?;
        let complete = |trace: &Trace| receive(trace).is_some() && of(trace, "server").is_some();
        Ok((found.iter().filter(|trace| complete(trace)).count() >= SLOW).then_some(()))
    })
    .with_context(|| format!("{} of {SLOW} traces: {found:#?}\n{}", found.len(), collector.log()))?;
    Ok(found)
}

/// Returns the span of the packet.
fn receive(trace: &Trace) -> Option<&Span> {
    trace.spans.iter().find(|span| span.operation_name == "network receive")
}

/// Returns the span of a service.
fn of<'a>(trace: &'a Trace, service: &str) -> Option<&'a Span> {
    let is_of = |span: &&Span| trace.processes[&span.process].service_name == service;
    trace.spans.iter().filter(|span| span.operation_name.starts_with("GET")).find(is_of)
}

/// Checks that the packet belongs to the client's span, agrees with the times of the SDK, and names the layer at which it waited.
fn check(trace: &Trace, version: &str) -> anyhow::Result<()> {
    let client = of(trace, "client").context("no span of the client")?;
    let server = of(trace, "server").context("no span of the server")?;
    let packet = receive(trace).context("no span of the packet")?;
    ensure!(packet.parent() == Some(client.id.as_str()), "another parent");
    ensure!(packet.text("undercurrent.network.layer") == Some("socket_read"), "another layer");
    ensure!(packet.text("network.type") == Some(version), "another IP version");
    ensure!(packet.start_time + PRECISION >= client.start_time, "the packet is older than its request");
    ensure!(packet.end() <= server.start_time + PRECISION, "the packet was read after the server's span began");
    ensure!(packet.duration >= LATE.as_micros() as u64, "the packet did not wait");
    let steps: Vec<&Span> = trace.spans.iter().filter(|span| span.parent() == Some(packet.id.as_str())).collect();
    let longest = steps.iter().max_by_key(|step| step.duration).context("no steps")?;
    ensure!(longest.operation_name == "network receive: socket_read", "another step");
    Ok(())
}

fn print(trace: &Trace) {
    let mut spans: Vec<&Span> = trace.spans.iter().collect();
    spans.sort_by_key(|span| (span.start_time, std::cmp::Reverse(span.duration)));
    for span in spans {
        let service = &trace.processes[&span.process].service_name;
        println!("  {:<34}{service:<14}{:>10.3} ms", span.operation_name, span.duration as f64 / 1e3);
    }
}

/// A process that ends on drop.
struct Running(Child);

impl Running {
    /// Starts a process and waits until it prints a text.
    fn start(command: &mut Command, ready: &str) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (out, error) = (child.stdout.take(), child.stderr.take());
        let running = Self(child);
        let (sender, lines) = std::sync::mpsc::channel();
        let out = out.map(|out| Box::new(out) as Box<dyn std::io::Read + Send>);
        let error = error.map(|error| Box::new(error) as Box<dyn std::io::Read + Send>);
        for stream in [out, error].into_iter().flatten() {
            let sender = sender.clone();
            // The threads read to the end, because the process would block on a full pipe.
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
            });
        }
        drop(sender);
        let mut printed = Vec::new();
        while let Ok(line) = lines.recv_timeout(PATIENCE) {
            let is_ready = line.contains(ready);
            printed.push(line);
            if is_ready {
                std::thread::spawn(move || lines.into_iter().for_each(drop));
                return Ok(running);
            }
        }
        anyhow::bail!("{command:?} did not print {ready:?}: {printed:#?}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = process::end(&mut self.0, PATIENCE);
    }
}

/// Two network namespaces with a veth pair. Dropping it removes them.
struct Wire {
    names: [String; 2],
}

impl Wire {
    fn new(addresses: [&str; 2]) -> anyhow::Result<Self> {
        let names = ["left", "right"].map(|end| format!("undercurrent-{end}-{}", std::process::id()));
        let wire = Self { names };
        let [left, right] = &wire.names;
        ip(&["netns", "add", left])?;
        ip(&["netns", "add", right])?;
        ip(&["-n", left, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", right])?;
        for (name, address) in wire.names.iter().zip(addresses) {
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            ip(&[&["-n", name, "address", "add", address, "dev", "wire"], nodad].concat())?;
            ip(&["-n", name, "link", "set", "wire", "up"])?;
        }
        Ok(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| drop(ip(&["netns", "delete", name])));
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    machine::output(Command::new("ip").args(arguments))
}

/// Returns a Python with the packages of `requirements.txt`, from the cache.
fn python() -> anyhow::Result<PathBuf> {
    let requirements = machine::workspace().join("xtask/e2e/traces/requirements.txt");
    let content = std::fs::read(&requirements).context("cannot read requirements.txt")?;
    let folder = machine::cache("python")?.join(&hash::sha256(&content)[..12]);
    let python = folder.join("bin/python3");
    if !folder.join("complete").exists() {
        machine::output(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        machine::output(
            Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&requirements),
        )?;
        std::fs::write(folder.join("complete"), "")?;
    }
    Ok(python)
}
