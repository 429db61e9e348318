//! The dashboards of otel-config/grafana, and the rules beside otel-config/prometheus.yml.

pub mod panels;

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, ensure};
use xtask_common::machine;
use xtask_e2e::{grafana, prometheus::PROMTOOL};

/// The folder of the dashboards.
const FOLDER: &str = "otel-config/grafana";
/// The tests of the rules.
const RULES: &str = "otel-config/prometheus-rules.test.yml";

/// Parses the dashboards strictly, and runs the tests of the rules.
pub fn check() -> anyhow::Result<()> {
    let files = files()?;
    grafana::parse(&files)?;
    println!("e2e dashboards: {} dashboards have the schema of Grafana", files.len());
    let tests = machine::workspace().join(RULES);
    let printed = machine::output(Command::new(PROMTOOL.path()?).args(["test", "rules"]).arg(tests))
        .with_context(|| format!("the rules fail {RULES}"))?;
    ensure!(printed.contains("SUCCESS"), "promtool printed {printed}");
    println!("e2e dashboards: the rules pass {RULES}");
    Ok(())
}

/// Returns the paths of the dashboards.
fn files() -> anyhow::Result<Vec<PathBuf>> {
    let folder = machine::workspace().join(FOLDER);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    ensure!(!files.is_empty(), "{} has no dashboards", folder.display());
    Ok(files)
}
