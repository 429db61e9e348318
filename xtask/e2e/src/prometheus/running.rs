//! A Prometheus on loopback, and its query API.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use xtask_common::machine;

use super::PROMETHEUS;
use crate::{
    ports::{free_address, retry},
    server::{Server, folder},
};

/// Timeout of a query.
const ANSWER: Duration = Duration::from_secs(10);

/// A Prometheus with an empty database. It ends on drop.
pub struct Prometheus {
    server: Server,
    address: SocketAddr,
    agent: ureq::Agent,
}

/// One element of the result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels, with the metric's name as `__name__`.
    pub labels: Labels,
    /// The value.
    pub value: f64,
}

/// Labels of a series by name.
pub type Labels = BTreeMap<String, String>;

/// The body of every response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<T> {
    data: Option<T>,
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    infos: Vec<String>,
}

/// The result of an instant query.
#[derive(Deserialize)]
struct Vector {
    result: Vec<Element>,
}

/// An element of an instant vector. Elements with a histogram have no `value`.
#[derive(Deserialize)]
struct Element {
    metric: Labels,
    value: Option<(f64, String)>,
}

/// The exemplars of one series.
#[derive(Deserialize)]
struct SeriesExemplars {
    exemplars: Vec<StoredExemplar>,
}

#[derive(Deserialize)]
struct StoredExemplar {
    labels: Labels,
}

impl Prometheus {
    /// Starts Prometheus on a free port with otel-config/prometheus.yml and these options, and waits until it is ready.
    pub fn start(options: &[&str]) -> anyhow::Result<Self> {
        let config = machine::workspace().join("otel-config/prometheus.yml");
        retry(|| Self::launch(&config, options))
    }

    /// Starts Prometheus on a free port with otel-config/prometheus-scrape.yml, and waits until it is ready. It scrapes an address every
    /// second. `more` follows the interval of the scrape.
    pub fn scraping(address: SocketAddr, more: &str, options: &[&str]) -> anyhow::Result<Self> {
        let settings = machine::workspace().join("otel-config");
        let text = fs::read_to_string(settings.join("prometheus-scrape.yml")).context("cannot read the settings")?;
        let rules = settings.join("prometheus-rules.yml").display().to_string();
        let replacements = [
            ("- prometheus-rules.yml", format!("- {rules}")),
            ("127.0.0.1:9464\"", format!("{address}\"")),
            ("scrape_interval: 10s", format!("scrape_interval: 1s{more}")),
        ];
        let text = replacements.into_iter().try_fold(text, |text, (place, new)| {
            ensure!(text.contains(place), "the settings lack {place:?}");
            Ok(text.replace(place, &new))
        })?;
        let folder = folder()?;
        let config = folder.path().join("prometheus.yml");
        fs::write(&config, text).context("cannot write the settings")?;
        Self::launch(&config, options)
    }

    fn launch(config: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let (folder, address) = (folder()?, free_address()?);
        let agent = ureq::Agent::config_builder().timeout_global(Some(ANSWER)).http_status_as_error(false).build();
        let agent: ureq::Agent = agent.into();
        let data = folder.path().join("data");
        let url = format!("http://{address}/-/ready");
        let ready = |_: &str| agent.get(&url).call().is_ok_and(|response| response.status().is_success());
        let server = Server::start(
            PROMETHEUS.title,
            &PROMETHEUS.path()?,
            folder,
            |command| {
                command.arg(format!("--config.file={}", config.display()));
                command.arg(format!("--web.listen-address={address}"));
                command.arg(format!("--storage.tsdb.path={}", data.display())).args(options)
            },
            ready,
        )?;
        Ok(Self { server, address, agent })
    }

    /// Returns the URL of the OTLP receiver, without the signal's path.
    pub fn endpoint(&self) -> String {
        format!("http://{}/api/v1/otlp", self.address)
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Runs an instant query.
    ///
    /// # Errors
    /// If the query is invalid, causes a warning, or returns histograms.
    pub fn query(&self, promql: &str) -> anyhow::Result<Vec<Sample>> {
        let run = || -> anyhow::Result<_> {
            let vector: Vector = self.get("query", &[("query", promql)])?;
            vector.result.into_iter().map(sample).collect()
        };
        run().with_context(|| format!("the query\n{promql}"))
    }

    /// Returns the labels of every series that matches a selector and has a sample in the database.
    pub fn series(&self, selector: &str) -> anyhow::Result<Vec<Labels>> {
        self.get("series", &[("match[]", selector)])
    }

    /// Returns the labels of every stored exemplar of the series that match a selector.
    pub fn exemplars(&self, selector: &str) -> anyhow::Result<Vec<Labels>> {
        exemplars(&self.fetch("query_exemplars", &[("query", selector), ("start", "0"), ("end", "9999999999")])?)
    }

    /// Sends metrics in OTLP/JSON to the OTLP receiver.
    pub fn send(&self, request: &str) -> anyhow::Result<()> {
        let url = format!("{}/v1/metrics", self.endpoint());
        let mut response = self.agent.post(url).header("Content-Type", "application/json").send(request)?;
        let status = response.status();
        ensure!(status.is_success(), "Prometheus answered {status}: {}", response.body_mut().read_to_string()?);
        Ok(())
    }

    fn get<T: DeserializeOwned>(&self, resource: &str, parameters: &[(&str, &str)]) -> anyhow::Result<T> {
        parse(&self.fetch(resource, parameters)?)
    }

    fn fetch(&self, resource: &str, parameters: &[(&str, &str)]) -> anyhow::Result<String> {
        let url = format!("http://{}/api/v1/{resource}", self.address);
        let call = self.agent.get(url).query_pairs(parameters.iter().copied()).call();
        Ok(call.context("Prometheus does not answer")?.body_mut().read_to_string()?)
    }
}

/// Parses the answer to a query of exemplars. Returns their labels.
pub fn exemplars(text: &str) -> anyhow::Result<Vec<Labels>> {
    let series: Vec<SeriesExemplars> = parse(text)?;
    Ok(series.into_iter().flat_map(|series| series.exemplars).map(|exemplar| exemplar.labels).collect())
}

fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let response: Response<T> = serde_json::from_str(text).with_context(|| format!("the response {text}"))?;
    let complaints = [response.warnings, response.infos, response.error.into_iter().collect()].concat();
    match response.data {
        Some(data) if complaints.is_empty() => Ok(data),
        _ => bail!("Prometheus reported: {}", complaints.join("; ")),
    }
}

fn sample(element: Element) -> anyhow::Result<Sample> {
    let (_, value) = element.value.with_context(|| format!("{:?} is a histogram, not a number", element.metric))?;
    Ok(Sample { labels: element.metric, value: value.parse()? })
}
