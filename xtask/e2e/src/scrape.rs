//! Prometheus scrapes the sidecar with otel-config/prometheus-scrape.yml, and has the series that a second Prometheus receives by OTLP.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tempfile::NamedTempFile;
use xtask_common::{process, traffic::Traffic};
use xtask_e2e::{
    collector::running::Collector,
    ports::{free_address, retry},
    prometheus::running::{Labels, Prometheus},
};

use crate::require_root;

/// Makes every measured packet a slow one, so histograms have exemplars. The histograms of `tcp_peers` have fixed bounds.
const SETTINGS: &str =
    "packets: {sampling: all}\nsignals: {slow_packets: {threshold: 1us}, tcp_peers: {enabled: true}}\n";
/// The option of the page.
const EXEMPLARS: &str = "--enable-feature=exemplar-storage";
/// Timeout for series to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);
/// Timeout for the end of the sidecar.
const STOP: Duration = Duration::from_secs(20);
/// A native histogram that loopback traffic fills.
const HISTOGRAM: &str = "undercurrent_network_receive_duration_seconds";
/// Messages of Prometheus about samples that it refused.
const REFUSALS: [&str; 4] = ["duplicate", "out-of-order", "out of order", "Append failed"];
/// The settings of a scrape in a text format.
const TEXTS: [&str; 2] = ["OpenMetricsText1.0.0", "PrometheusText0.0.4"];

/// A running sidecar. It ends on drop.
struct Sidecar(Child);

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Err(error) = process::end(&mut self.0, STOP) {
            eprintln!("the sidecar did not exit: {error:#}");
        }
    }
}

/// Runs the sidecar under traffic, and compares the data of both.
pub fn run(binary: &Path) -> anyhow::Result<()> {
    require_root()?;
    let received = Prometheus::start(&["--web.enable-otlp-receiver", EXEMPLARS])?;
    let collector = Collector::forward_to(&received.endpoint())?;
    let traffic = Traffic::start()?;
    let config = NamedTempFile::new().context("no file for the settings")?;
    std::fs::write(config.path(), SETTINGS)?;
    let address = free_address()?;
    let _sidecar = start(binary, config.path(), address, &collector)?;
    let scraped = retry(|| Prometheus::scraping(address, "", &[EXEMPLARS]))?;
    let outcome = compare(&received, &scraped)
        .and_then(|()| texts(address, &received))
        .with_context(|| format!("Prometheus logged:\n{}", scraped.log()));
    traffic.stop()?;
    outcome?;
    let refused: Vec<String> = scraped.log().lines().filter(|line| is_refusal(line)).map(str::to_owned).collect();
    ensure!(refused.is_empty(), "Prometheus refused samples: {refused:#?}");
    Ok(())
}

fn start(binary: &Path, config: &Path, address: SocketAddr, collector: &Collector) -> anyhow::Result<Sidecar> {
    let mut command = Command::new(binary);
    command.args(["run", "--level", "detailed", "--interval", "1s", "--output", "otlp"]);
    command.args(["--listen", &address.to_string(), "--config"]).arg(config);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()).stdin(Stdio::null());
    command.spawn().map(Sidecar).context("cannot start the sidecar")
}

fn is_refusal(line: &str) -> bool {
    REFUSALS.iter().any(|text| line.contains(text))
}

/// Returns the series of the sidecar, without recorded series and the series about the scrape.
fn series(prometheus: &Prometheus) -> anyhow::Result<BTreeSet<Labels>> {
    let series = prometheus.series(r#"{__name__=~"[a-z0-9_]+", __name__!~"up|scrape_.+"}"#)?;
    Ok(series.into_iter().map(with_plain_bound).collect())
}

/// Prometheus writes the bound 1 as `1.0` if it scrapes, and as `1` if it receives OTLP.
fn with_plain_bound(mut labels: Labels) -> Labels {
    if let Some(bound) = labels.get_mut("le") {
        *bound = bound.parse::<f64>().map_or_else(|_| bound.clone(), |bound| bound.to_string());
    }
    labels
}

/// Checks that names, labels, native histograms and exemplars agree.
fn compare(received: &Prometheus, scraped: &Prometheus) -> anyhow::Result<()> {
    let mut differing = (BTreeSet::new(), BTreeSet::new());
    let agree = process::wait_for("equal series", ARRIVAL, || {
        let (by_otlp, by_scrape) = (series(received)?, series(scraped)?);
        let has_histograms =
            by_scrape.iter().any(|labels| labels.get("__name__").is_some_and(|name| name == HISTOGRAM));
        differing = (&by_otlp - &by_scrape, &by_scrape - &by_otlp);
        let is_equal = differing.0.is_empty() && differing.1.is_empty();
        Ok((is_equal && has_histograms).then_some(by_scrape.len()))
    });
    let count =
        agree.with_context(|| format!("only by OTLP: {:#?}; only by scrape: {:#?}", differing.0, differing.1))?;
    println!("e2e scrape: {count} series have equal names and labels by OTLP and by scrape");
    let measured = format!("histogram_count(sum({HISTOGRAM}))");
    let before = number(scraped, &measured)?.context("no native histogram")?;
    process::wait_for("the count of the scrape by OTLP", ARRIVAL, || {
        Ok(number(received, &measured)?.filter(|count| *count >= before))
    })?;
    let exemplars = |prometheus: &Prometheus| -> anyhow::Result<BTreeSet<Labels>> {
        // Prometheus keeps the dots of attributes in the exemplars of OTLP.
        let plain = |labels: Labels| labels.into_iter().map(|(name, value)| (name.replace('.', "_"), value)).collect();
        Ok(prometheus.exemplars(HISTOGRAM)?.into_iter().map(plain).collect())
    };
    let mut found = [None, None];
    let common = process::wait_for("an exemplar in both", ARRIVAL, || {
        let (by_otlp, by_scrape) = (exemplars(received)?, exemplars(scraped)?);
        found = [by_otlp.first().cloned(), by_scrape.first().cloned()];
        let common = &by_otlp & &by_scrape;
        Ok((!common.is_empty()).then_some(common.len()))
    });
    let common = common.with_context(|| format!("exemplars by OTLP and by scrape, for example: {found:?}"))?;
    println!("e2e scrape: {before} packets in native histograms, {common} exemplars in both");
    Ok(())
}

/// Scrapes each text format, and checks that it has every series: those of histograms with fixed bounds.
fn texts(address: SocketAddr, received: &Prometheus) -> anyhow::Result<()> {
    for protocol in TEXTS {
        let more = format!("\n    scrape_protocols: [{protocol}]");
        let scraped = retry(|| Prometheus::scraping(address, &more, &[EXEMPLARS]))?;
        let numbers = |prometheus: &Prometheus| -> anyhow::Result<BTreeSet<Labels>> {
            let mut series = series(prometheus)?;
            // Gauges in seconds are few.
            let is_number =
                |name: &String| !["_seconds", "_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end));
            series.retain(|labels| labels.get("__name__").is_some_and(is_number));
            Ok(series)
        };
        let mut missing = BTreeSet::new();
        let agree = process::wait_for("the series of a text format", ARRIVAL, || {
            missing = &numbers(received)? - &numbers(&scraped)?;
            let buckets = number(&scraped, &format!("sum({HISTOGRAM}_bucket{{le=\"+Inf\"}})"))?;
            Ok(buckets.filter(|buckets| *buckets > 0.0 && missing.is_empty()))
        });
        let packets = agree.with_context(|| format!("{protocol} lacks {missing:#?}; {}", scraped.log()))?;
        println!("e2e scrape: {protocol} has every series, and {packets} packets in histograms with fixed bounds");
    }
    Ok(())
}

/// Returns the single number of a query.
fn number(prometheus: &Prometheus, query: &str) -> anyhow::Result<Option<f64>> {
    Ok(prometheus.query(query)?.first().map(|sample| sample.value))
}
