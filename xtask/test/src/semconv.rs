//! The registry of names against the schema of its format, which OpenTelemetry Weaver publishes.

use std::{fs, path::PathBuf, process::Command};

use anyhow::Context as _;
use xtask_common::{cargo, hash, machine, tally::Tally};

/// The schema in Weaver's release.
const SCHEMA: &str = "https://raw.githubusercontent.com/open-telemetry/weaver/v0.25.1/schemas/semconv.schema.v2.json";
/// Its SHA-256.
const HASH: &str = "edade939276171eba06e2fc0bafa1db2f8b4addb4fa276bb780f7b30acfa1efd";

/// Checks the registry. Skipped if the schema cannot be fetched.
pub fn check() -> anyhow::Result<Tally> {
    let Some(schema) = schema()? else {
        return Ok(Tally::default().and_skipped(format!("semconv: {SCHEMA} cannot be fetched from this machine")));
    };
    let mut test = cargo::command();
    test.args(["test", "--locked", "--quiet", "--package", "undercurrent", "--test", "catalogue", "--", "--exact"]);
    test.args(["--ignored", "the_registry_follows_weavers_schema"]).env("UNDERCURRENT_WEAVER_SCHEMA", schema);
    super::lint::checked(&mut test, "see receiver/src/catalogue/semconv.rs")
}

/// Returns the path of the schema in the cache, and fetches it if it is missing.
fn schema() -> anyhow::Result<Option<PathBuf>> {
    let path = machine::cache("weaver")?.join(HASH);
    if !path.is_file() {
        let fetched = path.with_extension("part");
        let mut fetch = Command::new("curl");
        fetch.args(["--fail", "--silent", "--location", "--max-time", "60", "--output"]).arg(&fetched).arg(SCHEMA);
        if !fetch.status().is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        fs::rename(&fetched, &path).with_context(|| format!("cannot move {} into the cache", fetched.display()))?;
    }
    let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let found = hash::sha256(&content);
    anyhow::ensure!(found == HASH, "{} has the hash {found}: remove it", path.display());
    Ok(Some(path))
}
