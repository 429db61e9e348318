//! Runs the sidecar with a collector and Prometheus, as docs/prometheus.md describes, and runs every query of the page.

mod checks;
mod names;
mod page;
mod pod;

use std::{collections::BTreeSet, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, ensure};
use xtask_common::{machine, process};
use xtask_e2e::{
    collector::running::Collector,
    prometheus::running::{Labels, Prometheus, Sample},
};

use self::{
    checks::{CHECKS, Check},
    page::{Page, Query},
};
use crate::{
    dashboards::{self, panels::Empty},
    engines::{Cgroups, Client, Docker, Engine},
    meters::Meters,
    require_root,
    workloads::{
        containers::{Container, Containers},
        sidecar::Sidecar,
    },
};

/// The names of the two workloads.
const SERVER: &str = "checkout";
const CLIENT: &str = "storefront";
/// Period of the exchanges between them.
const PERIOD: Duration = Duration::from_millis(5);
/// Period of the exchanges of further workloads.
const SLOW_PERIOD: &str = "100";
/// Numbers of workloads in the table of series that only `--write` measures.
const MANY: [usize; 2] = [10, 100];
/// The options of Prometheus in the page: the OTLP receiver, and the storage of exemplars.
const OPTIONS: [&str; 2] = ["--web.enable-otlp-receiver", "--enable-feature=exemplar-storage"];
/// The sidecar's variables in the page for Prometheus without a collector, besides the endpoint.
const DIRECT: [(&str, &str); 3] = [
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ("OTEL_TRACES_EXPORTER", "none"),
    ("OTEL_LOGS_EXPORTER", "none"),
];
/// The collector's message about a Prometheus without this option.
const NO_RECEIVER: &str = "responded with HTTP Status Code 404";
/// Timeout for samples to arrive in Prometheus. Shorter than the lookback of queries, which is five minutes.
const ARRIVAL: Duration = Duration::from_secs(120);
/// Number of samples of each series before the queries: the range of the queries in seconds, less some late samples. A rate over a
/// range with fewer samples is too low.
const FULL_RANGE: usize = 55;
/// Number of samples after which the number of series is stable.
const STABLE: usize = 5;
/// The layer that every packet reaches, of the containers.
const OF_CONTAINERS: &str =
    r#"undercurrent_network_receive_duration_seconds{undercurrent_network_layer="transport", container_name!=""}"#;
/// Selects the series of the node.
const NODE: &str = r#"{job="undercurrent"}"#;
/// Selects the series of containers, without those of rules. The machine may have other workloads.
const CONTAINERS: &str = r#"{container_name!="", __name__!~"ALERTS.*|.+:.+"}"#;
/// The workloads in the dashboards: containers of Docker, and the container in a pod.
const WORKLOADS: [&str; 3] = [SERVER, CLIENT, pod::WORKLOAD];
/// Panels that have no data unless an event happens, or a level is set.
const EMPTY: [Empty; 8] = [
    Empty { title: "Throttled by CPU quotas", reason: "no workload has a CPU quota" },
    Empty { title: "Retransmits", reason: "a bridge loses no segments" },
    Empty { title: "Drops by reason", reason: "no packet of the containers is dropped" },
    Empty { title: "Full accept queues", reason: "by workload only with fentry" },
    Empty { title: "Lost events", reason: "needs a loss within a minute" },
    Empty { title: DETAILED[0], reason: "needs the level detailed" },
    Empty { title: DETAILED[1], reason: "needs the level detailed" },
    Empty { title: DETAILED[2], reason: "needs the level detailed" },
];
/// Panels that have data at the level `detailed`.
const DETAILED: [&str; 3] = ["Exact time of softirqs", "Wait of softirqs, p99", "Way out, p99"];
/// Allowed relative difference between the number of series and the number in the page: hooks and reasons depend on the kernel.
const TOLERANCE: f64 = 0.25;

/// The options of `cargo xtask e2e prometheus`.
#[derive(clap::Args)]
pub struct Options {
    /// Write the results, and the number of series with up to 100 workloads, into docs/prometheus.md
    #[arg(long)]
    write: bool,
}

/// Runs the scenario.
pub fn run(binary: &Path, options: &Options) -> anyhow::Result<()> {
    require_root()?;
    dashboards::check()?;
    let mut page = Page::read()?;
    without_receiver(binary, &page)?;
    without_collector(binary, &page)?;
    ensure!(OPTIONS.iter().all(|option| page.contains(option)), "the page starts Prometheus without {OPTIONS:?}");
    let prometheus = Prometheus::start(&OPTIONS)?;
    let collector = Collector::forward_to(&prometheus.endpoint())?;
    let engine = Docker::start(Cgroups::Unified)?;
    let meters = Meters::start()?;
    let run = Run { binary, prometheus: &prometheus, collector: &collector, engine: &engine, meters: &meters };
    run.all(&mut page, options)
        .with_context(|| format!("the collector logged:\n{}\nPrometheus:\n{}", collector.log(), prometheus.log()))?;
    if options.write {
        page.write()?;
    }
    drop(collector);
    Client::end(engine)
}

/// Checks the effect of a Prometheus without its OTLP receiver: the collector logs an error.
fn without_receiver(binary: &Path, page: &Page) -> anyhow::Result<()> {
    ensure!(page.contains(NO_RECEIVER), "the page does not quote {NO_RECEIVER:?}");
    let prometheus = Prometheus::start(&[])?;
    let collector = Collector::forward_to(&prometheus.endpoint())?;
    let mut sidecar = Command::new(binary);
    sidecar.args(["run", "--output", "otlp", "--interval", "1s", "--duration", "1s"]);
    machine::output(sidecar.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()))?;
    let logged = || Ok(collector.log().contains(NO_RECEIVER).then_some(()));
    process::wait_for("the error about the missing receiver", ARRIVAL, logged)
        .with_context(|| format!("the collector logged:\n{}", collector.log()))
}

/// Checks that the sidecar's metrics arrive in Prometheus without a collector.
fn without_collector(binary: &Path, page: &Page) -> anyhow::Result<()> {
    ensure!(DIRECT.iter().all(|(name, value)| page.contains(&format!("{name}={value}"))), "the page lacks {DIRECT:?}");
    let prometheus = Prometheus::start(&OPTIONS)?;
    let mut sidecar = Command::new(binary);
    sidecar.args(["run", "--output", "otlp", "--interval", "1s", "--duration", "3s"]).envs(DIRECT);
    machine::output(sidecar.env("OTEL_EXPORTER_OTLP_ENDPOINT", prometheus.endpoint()))?;
    let metric = format!("undercurrent_collect_duration_seconds{NODE}");
    process::wait_for("metrics in Prometheus", ARRIVAL, || Ok((!prometheus.query(&metric)?.is_empty()).then_some(())))
        .with_context(|| format!("Prometheus logged:\n{}", prometheus.log()))
}

/// The programs of the scenario.
struct Run<'a> {
    binary: &'a Path,
    prometheus: &'a Prometheus,
    collector: &'a Collector,
    engine: &'a Docker,
    meters: &'a Meters,
}

impl Run<'_> {
    fn all(&self, page: &mut Page, options: &Options) -> anyhow::Result<()> {
        let sidecar = self.sidecar("normal")?;
        names::check(self.prometheus, self.binary, page, options.write)?;
        self.wait_for_samples("undercurrent_collect_duration_seconds", STABLE, 1)?;
        let mut counts = vec![(0, self.series_of_node()?)];
        let containers = Containers::new(self.engine)?;
        let server = containers.start_with(&[&format!("OTEL_SERVICE_NAME={SERVER}")], SERVER, &["server"])?;
        let address = containers.address(&server)?;
        let client = containers.start(CLIENT, &["steady", &address, &PERIOD.as_millis().to_string()])?;
        self.wait_for_samples(OF_CONTAINERS, FULL_RANGE, 2)?;
        pod::imitate(self.prometheus, &sidecar.requests()?)?;
        self.queries(page, options)?;
        self.exemplars()?;
        dashboards::panels::run(self.prometheus, &WORKLOADS, &EMPTY)?;
        counts.push((2, self.series_of_node()?));
        let mut workloads = 2;
        for number in MANY.iter().filter(|_| options.write) {
            while workloads < *number {
                workloads += 1;
                containers.start(&format!("{CLIENT}-{workloads}"), &["steady", &address, SLOW_PERIOD])?;
            }
            self.wait_for_samples(OF_CONTAINERS, STABLE, *number)?;
            counts.push((*number, self.series_of_node()?));
        }
        let nameless = r#"undercurrent_cpu_time_seconds_total{undercurrent_cpu_use="compute", host_name!="", job!="undercurrent", container_name="", k8s_pod_name="", undercurrent_workload_cgroup="", undercurrent_workload_unit=""}"#;
        let nameless = self.prometheus.series(nameless)?.len();
        println!(
            "e2e prometheus: workloads and series: {counts:?}; {nameless} containers were exported before their names"
        );
        if options.write {
            page.set_series(&counts)?;
        }
        compare(&page.series()?, &counts)?;
        let sidecar = self.restart(sidecar)?;
        self.end_of(&containers, client)?;
        sidecar.stop().map(drop)
    }

    fn sidecar(&self, level: &str) -> anyhow::Result<Sidecar> {
        let socket = Engine::daemon(self.engine).folder().socket();
        let meters = self.meters.root().to_str().context("the temporary folder's path is not UTF-8")?;
        Sidecar::start(
            self.binary,
            Cgroups::Unified,
            &socket,
            self.collector,
            &["--sysfs-root", meters, "--level", level],
        )
    }

    /// Waits until a number of instances of a metric have a number of samples in the last minute.
    fn wait_for_samples(&self, selector: &str, samples: usize, instances: usize) -> anyhow::Result<()> {
        let query = format!("count by (instance) (count_over_time({selector}[1m]) >= {samples})");
        let enough = || Ok((self.prometheus.query(&query)?.len() >= instances).then_some(()));
        process::wait_for(&format!("{samples} samples of {selector} in {instances} instances"), ARRIVAL, enough)
    }

    /// Returns the number of series with a current sample.
    fn series_of_node(&self) -> anyhow::Result<usize> {
        let result = self.prometheus.query(&format!("count({NODE} or {CONTAINERS})"))?;
        Ok(result.first().context("no series")?.value as usize)
    }

    /// Runs every query of the page, and checks its result and the labels in the page.
    fn queries(&self, page: &mut Page, options: &Options) -> anyhow::Result<()> {
        for (title, Check { format, verify, .. }) in CHECKS.map(|check| (check.title, check)) {
            let queries = page.queries()?;
            let query = queries.iter().find(|query| query.title == title).context("no query has this title")?;
            let samples = self.prometheus.query(&query.promql)?;
            verify(&samples).with_context(|| format!("{title}: {samples:?}"))?;
            labels(query, &samples)?;
            println!("e2e prometheus: {title}: {} results", samples.len());
            if options.write {
                page.set_result(query, format, &samples);
            }
        }
        Ok(())
    }

    /// Checks that the exemplar of a packet that was read late arrives, with the ids of its span. A paused container reads nothing.
    fn exemplars(&self) -> anyhow::Result<()> {
        let reads = format!(
            r#"undercurrent_network_receive_duration_seconds{{undercurrent_network_layer="socket_read", job="{SERVER}"}}"#
        );
        let found = process::wait_for("an exemplar of a slow packet", ARRIVAL, || {
            // Each call of the client takes longer than the least threshold of slow packets.
            Client::call(self.engine, "pause", &[SERVER])?;
            Client::call(self.engine, "unpause", &[SERVER])?;
            Ok(self.prometheus.exemplars(&reads)?.pop())
        })?;
        let has_ids = ["trace_id", "span_id"].iter().all(|id| found.contains_key(*id));
        ensure!(has_ids, "an exemplar has the labels {found:?}");
        Ok(())
    }

    /// Checks that a restart of the sidecar starts no new series, and that Prometheus sees a counter reset. After it, the level is
    /// `detailed`, and the panels that need it have data.
    fn restart(&self, sidecar: Sidecar) -> anyhow::Result<Sidecar> {
        let before = self.identities()?;
        sidecar.stop()?;
        let sidecar = self.sidecar("detailed")?;
        let reset = "resets(undercurrent_softnet_processed_total[5m]) > 0";
        process::wait_for(
            "a counter reset",
            ARRIVAL,
            || Ok((!self.prometheus.query(reset)?.is_empty()).then_some(())),
        )?;
        let is_detailed = || Ok(dashboards::panels::have_data(self.prometheus, &DETAILED)?.then_some(()));
        process::wait_for("data of the level `detailed`", ARRIVAL, is_detailed)?;
        let after = self.identities()?;
        println!("e2e prometheus: {} containers before a restart of the sidecar, {} after", before.len(), after.len());
        ensure!(after == before, "a restart of the sidecar changed the containers: {before:?} became {after:?}");
        Ok(sidecar)
    }

    /// Checks that the series of a container end with the container, and not five minutes later.
    fn end_of(&self, containers: &Containers<'_>, container: Container) -> anyhow::Result<()> {
        // Prometheus never ends `target_info`. The sidecar ends the series that had an event since its restart; these have events at any time.
        let metrics = "undercurrent_cpu_time_.+|undercurrent_network_receive_.+";
        let current = format!(r#"count({{container_name="{}", __name__=~"{metrics}"}})"#, container.name);
        let has = |series: bool| Ok((self.prometheus.query(&current)?.is_empty() != series).then_some(()));
        process::wait_for("the container's series", ARRIVAL, || has(true))?;
        containers.end(vec![container])?;
        process::wait_for("the end of the container's series", ARRIVAL, || has(false))
    }

    /// Returns the identities of all containers that have had a sample.
    fn identities(&self) -> anyhow::Result<BTreeSet<Labels>> {
        let containers = r#"undercurrent_cpu_time_seconds_total{container_name!="", undercurrent_cpu_use="compute"}"#;
        let series = self.prometheus.series(containers)?;
        Ok(series.into_iter().collect())
    }
}

/// Checks that the table in the page has a column for each label of a result.
fn labels(query: &Query, samples: &[Sample]) -> anyhow::Result<()> {
    let columns = query.columns.split_last().map(|(_, labels)| labels).unwrap_or_default();
    for name in samples.iter().flat_map(|sample| sample.labels.keys()) {
        ensure!(columns.contains(name), "{}: the result has the label {name}, the page has {columns:?}", query.title);
    }
    for column in columns {
        let used = samples.is_empty() || samples.iter().any(|sample| sample.labels.contains_key(column));
        ensure!(used, "{}: the page has a column {column}, the result has no such label", query.title);
    }
    Ok(())
}

/// Compares the number of series with the page.
fn compare(page: &[(usize, usize)], counts: &[(usize, usize)]) -> anyhow::Result<()> {
    for (workloads, count) in counts {
        let row = page.iter().find(|(number, _)| number == workloads);
        let (_, documented) = row.with_context(|| format!("the page has no row for {workloads} workloads"))?;
        let difference = (*count as f64 / *documented as f64 - 1.0).abs();
        ensure!(
            difference <= TOLERANCE,
            "{workloads} workloads have {count} series, the page has {documented}: run `cargo xtask e2e prometheus --write`"
        );
    }
    Ok(())
}
