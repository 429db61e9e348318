//! Starts examples/docker-compose with a real Docker engine and checks the output of its collector.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use xtask_common::{machine, process};

use super::{
    engines::{Cgroups, Client, Docker, images},
    expected, require_root,
};
use xtask_e2e::{
    collector::otlp::{self, Request, attributes, resource},
    jaeger::running::{Span, Trace, parse, query},
};

/// Timeout for the start of all containers and two intervals of the example.
const PATIENCE: Duration = Duration::from_secs(90);
/// Minimum number of packets between two requests, five seconds apart. The client and the server exchange fifty times a second, at
/// least two datagrams and two segments each time.
const FEWEST_PACKETS: u64 = 250;

/// Starts the example, waits for two requests of the sidecar in the collector's output, and stops the example.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    let engine = Docker::start(Cgroups::Unified)?;
    check_files(&engine)?;
    images::provide(&engine, sidecar)?;
    let took = watch(&engine)?;
    engine.end()?;
    println!("e2e compose: the example's collector wrote two requests of the sidecar after {took:.1?}");
    Ok(())
}

/// Starts and stops the example. Returns the time until the metrics arrived.
fn watch(engine: &Docker) -> anyhow::Result<Duration> {
    let stack = Stack::build(engine)?;
    let start = Instant::now();
    let seen = stack.up().and_then(|()| {
        process::wait_for("the names of the containers", PATIENCE, || stack.names()).with_context(|| stack.last())?;
        let metrics =
            process::wait_for("the sidecar's metrics in the collector's output", PATIENCE, || stack.metrics());
        metrics.and_then(|(first, last)| check(&first, &last))?;
        process::wait_for("a slow request of the example in Jaeger", PATIENCE, || slow_request(engine))
    });
    seen.with_context(|| format!("the containers logged:\n{}", stack.logs()))?;
    let took = start.elapsed();
    stack.down()?;
    Ok(took)
}

/// Checks that compose accepts both files that grant privileges. The host may not support one of them.
fn check_files(engine: &Docker) -> anyhow::Result<()> {
    for privileges in ["docker-compose.override.yaml", RESTRICTED] {
        machine::output(compose(engine, privileges).args(["config", "--quiet"]))?;
    }
    Ok(())
}

/// Checks that two requests of the sidecar are correct, and that they show the traffic between the client and the server.
fn check(first: &Request, last: &Request) -> anyhow::Result<()> {
    expected::node(last)?;
    expected::cpu_time(last)?;
    for transport in ["tcp", "udp"] {
        let packets = expected::received(last, transport)?.saturating_sub(expected::received(first, transport)?);
        ensure!(
            packets >= FEWEST_PACKETS,
            "{packets} packets of {transport} were timed, expected at least {FEWEST_PACKETS}"
        );
    }
    Ok(())
}

/// The query API of the example's Jaeger.
const JAEGER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 16686));

/// Prints the answer to a request, for a call in the engine's network namespace.
const FETCH: &str =
    "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())";

/// Returns once a late request of the example has the span of its packet, which waited for the reader, with the name of the
/// reader's service.
fn slow_request(engine: &Docker) -> anyhow::Result<Option<()>> {
    let url = query(JAEGER, "orders-client", Duration::from_millis(100));
    let answer = machine::output(engine.daemon().inside().args(["python3", "-c", FETCH, &url]))?;
    let traces = parse(&answer)?;
    let waited = |trace: &Trace, span: &Span| {
        let service = trace.processes.get(&span.process).map(|process| process.service_name.as_str());
        let is_read = span.text("undercurrent.network.layer") == Some("socket_read");
        span.operation_name == "network receive" && is_read && service == Some("orders")
    };
    Ok(traces.iter().any(|trace| trace.spans.iter().any(|span| waited(trace, span))).then_some(()))
}

/// The name of the project: the first part of the names of containers.
const PROJECT: &str = "undercurrent-e2e";
/// Privileges that every test host can grant, including hosts without CAP_SYS_RESOURCE.
const RESTRICTED: &str = "docker-compose.restricted.yaml";

fn folder() -> PathBuf {
    machine::workspace().join("examples/docker-compose")
}

fn compose(engine: &Docker, privileges: &str) -> Command {
    let mut command = engine.compose();
    command.args(["--project-name", PROJECT]);
    for file in ["docker-compose.yaml", privileges] {
        command.arg("--file").arg(folder().join(file));
    }
    command
}

/// The name of a compose file for this engine.
const SOCKET: &str = "socket.yaml";

/// Returns a compose file that mounts the socket of this engine in its usual place. The sidecar finds the socket of an engine on the
/// host in this place of the host's files.
fn socket(engine: &Docker) -> String {
    let path = engine.daemon().folder().socket();
    format!("services: {{sidecar: {{volumes: ['{}:/run/docker.sock:ro']}}}}\n", path.display())
}

/// The example's containers. They end with the engine at the latest.
struct Stack<'a> {
    engine: &'a Docker,
    output: tempfile::TempDir,
}

impl<'a> Stack<'a> {
    /// Builds the sidecar's image with the example's Dockerfile.
    fn build(engine: &'a Docker) -> anyhow::Result<Self> {
        let stack = Self { engine, output: tempfile::tempdir().context("cannot create a folder for the collector")? };
        fs::write(stack.output.path().join(SOCKET), socket(engine))
            .context("cannot write the location of the engine's socket")?;
        machine::output(stack.compose().arg("build")).context("the example's image does not build")?;
        Ok(stack)
    }

    fn up(&self) -> anyhow::Result<()> {
        machine::output(self.compose().args(["up", "--detach", "--no-build"])).context("the example does not start")?;
        Ok(())
    }

    fn compose(&self) -> Command {
        let mut command = compose(self.engine, RESTRICTED);
        command.env("OUTPUT", self.output.path()).arg("--file").arg(self.output.path().join(SOCKET));
        command
    }

    /// Returns once every container of the example with traffic has its name, and its service, in the sidecar's metrics.
    fn names(&self) -> anyhow::Result<Option<()>> {
        let Some((_, last)) = self.metrics()? else { return Ok(None) };
        let has = |service: &&str| {
            // Compose 1 joins by `_`, and Compose 2 by `-`.
            let names = ["_", "-"].map(|joint| [PROJECT, service, "1"].join(joint));
            last.resource_metrics.iter().map(resource).any(|of| {
                names.iter().any(|name| otlp::has(of, "container.name", name)) && otlp::has(of, "service.name", service)
            })
        };
        Ok(["server", "client", "orders"].iter().all(has).then_some(()))
    }

    /// Returns the first and the last request of the sidecar in the collector's output, once there are two.
    fn metrics(&self) -> anyhow::Result<Option<(Request, Request)>> {
        let file = self.output.path().join("metrics.jsonl");
        if !file.exists() {
            return Ok(None);
        }
        let mut requests: Vec<_> =
            Request::read_all(&file)?.into_iter().filter(|request| expected::node(request).is_ok()).collect();
        let last = requests.pop();
        Ok(requests.into_iter().next().zip(last))
    }

    /// Describes the last request of the sidecar.
    fn last(&self) -> String {
        let requests = Request::read_all(&self.output.path().join("metrics.jsonl")).unwrap_or_default();
        let resources =
            requests.last().into_iter().flat_map(|last| &last.resource_metrics).map(resource).map(attributes);
        format!("the last of {} requests has the resources {:?}", requests.len(), resources.collect::<Vec<_>>())
    }

    fn logs(&self) -> String {
        machine::output(self.compose().args(["logs", "--no-color"])).unwrap_or_else(|error| format!("none: {error:#}"))
    }

    fn down(&self) -> anyhow::Result<()> {
        machine::output(self.compose().args(["down", "--volumes", "--timeout", "5"]))?;
        Ok(())
    }
}
