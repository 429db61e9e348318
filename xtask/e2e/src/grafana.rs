//! The strict parser of the Grafana Foundation SDK. Grafana itself is not run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use xtask_common::{hash, machine};

use crate::{
    cached,
    go::{Go, Version},
};

/// The Go module of the program that calls the parser.
const FILES: [(&str, &str); 3] = [
    ("go.mod", include_str!("../grafana/go.mod")),
    ("go.sum", include_str!("../grafana/go.sum")),
    ("main.go", include_str!("../grafana/main.go")),
];
/// The program, and its folder in the cache.
const PROGRAM: &str = "grafana-dashboards";
/// The oldest Go that the module accepts.
const OLDEST_GO: Version = Version(1, 21);

/// Parses dashboards strictly.
///
/// # Errors
/// If a dashboard has an unknown field, lacks a required one, or has a value of another type.
pub fn parse(dashboards: &[PathBuf]) -> anyhow::Result<()> {
    let text: String = FILES.iter().map(|(_, text)| *text).collect();
    let name = format!("{PROGRAM}-{}", &hash::sha256(text.as_bytes())[..12]);
    let program = cached::program(PROGRAM, &name, build)?;
    machine::output(Command::new(program).args(dashboards)).context("a dashboard has another schema").map(drop)
}

fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    eprintln!("building the parser of dashboards: half a minute, once");
    for (file, text) in FILES {
        fs::write(folder.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    let go = Go::find("the parser of dashboards", OLDEST_GO)?;
    let mut build = go.command(folder)?;
    machine::output(build.args([
        "build",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags=-s -w",
        "-o",
        PROGRAM,
        ".",
    ]))
    .context("the parser of dashboards does not compile")?;
    Ok(folder.join(PROGRAM))
}
