//! The parts of the test run.
use std::process::Command;

use xtask_common::{artifacts, tally::Tally};

use crate::{fuzz, guest, lint, nextest, semconv, unused};

/// When a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// With every `cargo xtask test`.
    Quick,
    /// With `--matrix`, or when `--only` names it.
    Matrix,
}

/// A part of the test run.
pub struct Part {
    /// Name for `--only`.
    pub name: &'static str,
    /// One line about the part.
    pub about: &'static str,
    /// The tier that includes the part.
    pub tier: Tier,
    /// True if the part loads programs, makes network namespaces or installs packages.
    pub root: bool,
    /// True if the part mostly waits, for a virtual machine or an hour. Adjacent parts of this kind run side by side.
    pub waits: bool,
    /// Runs the part. An error counts as one failed test.
    pub run: fn() -> anyhow::Result<Tally>,
}

impl Part {
    const fn quick(name: &'static str, about: &'static str, run: fn() -> anyhow::Result<Tally>) -> Self {
        Self { name, about, tier: Tier::Quick, root: false, waits: false, run }
    }

    const fn matrix(name: &'static str, about: &'static str, run: fn() -> anyhow::Result<Tally>) -> Self {
        Self { tier: Tier::Matrix, ..Self::quick(name, about, run).needs_root() }
    }

    const fn needs_root(self) -> Self {
        Self { root: true, ..self }
    }

    const fn waits(self) -> Self {
        Self { waits: true, ..self }
    }
}

/// All parts in the order of a run. Cheap checks come first. The longest parts that wait start before the others, so that all of
/// them end at about one time.
pub const PARTS: &[Part] = &[
    Part::quick("format", "Rust files are formatted", lint::rust_format),
    Part::quick("toml", "TOML files are formatted", lint::toml_format),
    Part::quick("deny", "deny.toml allows all dependencies", lint::dependencies),
    Part::quick("unused", "every declared dependency is used", unused::check),
    Part::quick("ebpf", "the committed kernel objects match their sources", objects),
    Part::quick("clippy", "clippy reports nothing", lint::clippy),
    Part::quick("build", "the sidecar and all tests compile", nextest::build),
    Part::quick("unit", "unit and documentation tests", nextest::unit),
    Part::quick("native", "integration tests on this machine's kernel", nextest::native).needs_root(),
    Part::quick("signals", "each signal once under Linux 6.12, by fentry", guest::signals).needs_root().waits(),
    Part::quick("verifiers", "the verifiers of Linux 5.10 and 6.1 accept every program", guest::verifiers)
        .needs_root()
        .waits(),
    Part::quick("collector", "a real collector takes the sidecar's metrics", collector).needs_root(),
    Part::matrix("features", "the sidecar compiles without each optional feature", lint::features),
    Part::matrix("semconv", "the registry of names follows the schema of OpenTelemetry Weaver", semconv::check),
    Part::matrix("fuzz", "each fuzz target finds nothing within 30 s", fuzz::run),
    Part::matrix("native-soaks", "long and load-sensitive tests on this machine's kernel", nextest::native_soaks),
    Part::matrix("vm", "virtual machines run this machine's programs under another kernel", nextest::virtual_machines),
    Part::matrix("outage", "an hour without a collector costs no counts and no memory", outage).waits(),
    Part::matrix("vm-6.12", "the kernel suite under Linux 6.12, by fentry", guest::linux_6_12).waits(),
    Part::matrix(
        "vm-6.1",
        "latency under Linux 6.1 by every set of hooks, and tests that differ by kernel",
        guest::linux_6_1,
    )
    .waits(),
    Part::matrix("vm-7", "latency under the newest Linux 7 by every set of hooks", guest::linux_7).waits(),
    Part::matrix(
        "vm-6.12-alternates",
        "latency under Linux 6.12 by kprobes, and by tracepoints",
        guest::linux_6_12_by_alternates,
    )
    .waits(),
    Part::matrix("vm-5.10", "latency under Linux 5.10 by every set of hooks", guest::linux_5_10).waits(),
    Part::matrix("vm-rt", "each signal and latency under a real-time Linux 6.12 (PREEMPT_RT)", guest::real_time)
        .waits(),
    Part::matrix("vm-nics", "a NIC that stamps packets, under a general Linux 6.12", guest::nics).waits(),
    Part::matrix("vm-threads", "two hyper-threads on each core, under Linux 6.12", guest::threads).waits(),
    Part::matrix("vm-backlog", "threads that process packets of loopback and veth, under Linux 6.12", guest::backlog)
        .waits(),
    Part::matrix("vm-icount", "softirq time against ftrace's where the clock counts instructions", guest::instructions),
    Part::matrix("receiver", "a collector with the receiver `undercurrent` runs the sidecar", receiver).needs_root(),
    Part::matrix(
        "prometheus",
        "a real Prometheus answers every query of docs/prometheus.md and of the dashboards",
        prometheus,
    ),
    Part::matrix("scrape", "a real Prometheus scrapes the series that another one receives by OTLP", scrape),
    Part::matrix("compose", "examples/docker-compose under a real Docker engine", compose),
    Part::matrix("chart", "the Helm chart has the objects of examples/kubernetes and refuses wrong values", chart),
    Part::matrix("gateway", "otel-config/gateway.yaml keeps slow packets' traces and adds names", gateway),
    Part::matrix("traces", "slow requests of OpenTelemetry's SDK in Jaeger, through a collector", traces),
    Part::matrix("packages", "the packages install, measure and leave nothing, under Debian 11, 12 and 13", packages),
    Part::matrix("engines", "containers of each engine on cgroup v1 and v2", engines),
];

fn objects() -> anyhow::Result<Tally> {
    Tally::run(Command::new(artifacts::member("xtask-build-ebpf")?).args(["build-ebpf", "--check"]))
}

fn collector() -> anyhow::Result<Tally> {
    scenario("collector")
}

fn packages() -> anyhow::Result<Tally> {
    Tally::run(Command::new(artifacts::member("xtask-package")?).args(["package", "--check"]))
}

fn receiver() -> anyhow::Result<Tally> {
    scenario("receiver")
}

fn prometheus() -> anyhow::Result<Tally> {
    scenario("prometheus")
}

fn scrape() -> anyhow::Result<Tally> {
    scenario("scrape")
}

fn compose() -> anyhow::Result<Tally> {
    scenario("compose")
}

fn outage() -> anyhow::Result<Tally> {
    scenario("outage")
}

fn chart() -> anyhow::Result<Tally> {
    scenario("chart")
}

fn gateway() -> anyhow::Result<Tally> {
    scenario("gateway")
}

fn traces() -> anyhow::Result<Tally> {
    scenario("traces")
}

fn engines() -> anyhow::Result<Tally> {
    scenario("workloads")
}

/// Runs a scenario of `cargo xtask e2e` with the sidecar that tests start.
fn scenario(name: &str) -> anyhow::Result<Tally> {
    let mut command = Command::new(artifacts::member("xtask-e2e")?);
    Tally::run(command.args(["e2e", name, "--sidecar"]).arg(nextest::sidecar()?))
}
