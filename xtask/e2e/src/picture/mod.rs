//! The picture of the live table: a host with containers under load and one slow reader.

pub mod actor;
pub mod sample;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use xtask_common::machine;

use super::{
    engines::{Cgroups, Docker, Engine, New, images},
    require_root,
};

const CGROUPS: Cgroups = Cgroups::Unified;
const IMAGE: &str = "registry.example/shop/app:1.0";
/// The signals in the picture. The others would fill a second screen.
const SIGNALS: &str = "\
signals:
  cpu_throttled: {enabled: false}
  network_drops: {enabled: false}
  softnet: {enabled: false}
  tcp_listen_overflows: {enabled: false}
  tcp_retransmits: {enabled: false}
";
/// Sets the size of the terminal, and runs the sidecar until the second table. The last table covers less than an interval.
const TERMINAL: &str =
    r#"stty cols 112 rows 50; exec "$SIDECAR" --config "$CONFIG" --output table --interval 5s --duration 12s 2>"$LOG""#;
/// The sequence that erases a table before the next one is drawn.
const ERASED: &str = "\x1b[J";

/// Runs the containers and the sidecar, and writes the table as its terminal shows it.
pub fn draw(sidecar: &Path, file: &Path) -> anyhow::Result<()> {
    require_root()?;
    let engine: Box<dyn Engine> = Box::new(Docker::start(CGROUPS)?);
    images::program(&*engine, Path::new(machine::MYSELF), IMAGE)?;
    let folder = tempfile::tempdir().context("cannot create a folder for the picture")?;
    start_containers(&*engine, &folder)?;
    let table = table(sidecar, &*engine, &folder)?;
    engine.end()?;
    // The shop only sends.
    for name in ["web", "clients", "orders"] {
        ensure!(table.contains(name), "the container {name} is not in the table:\n{table}");
    }
    fs::write(file, anstyle_svg::Term::new().render_svg(&table))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn start_containers(engine: &dyn Engine, folder: &TempDir) -> anyhow::Result<()> {
    let start = |name: &str, arguments: &[&str]| {
        let command = [&["/program", "e2e", "actor", name], arguments].concat();
        engine.run(&New { name, image: IMAGE, volume: folder.path(), environment: &[], command: &command })
    };
    for (server, client) in [("web", "clients"), ("orders", "shop")] {
        let id = start(server, &[])?;
        start(client, &[&engine.address(&id)?])?;
    }
    Ok(())
}

/// Returns the second table of a run.
fn table(sidecar: &Path, engine: &dyn Engine, folder: &TempDir) -> anyhow::Result<String> {
    let (config, log) = (folder.path().join("config.yaml"), folder.path().join("log"));
    let socket = engine.daemon().folder().socket();
    fs::write(&config, format!("workloads: {{sockets: [{}]}}\n{SIGNALS}", socket.display()))?;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-euc"])
        .arg([CGROUPS.script(), r#"exec script --quiet --return --command "$1" /dev/null"#].concat())
        .args(["sh", TERMINAL])
        .env("SIDECAR", sidecar)
        .env("CONFIG", &config)
        .env("LOG", &log)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .context("cannot run unshare(1) and script(1)")?;
    let log = || fs::read_to_string(&log).unwrap_or_default();
    ensure!(output.status.success(), "the sidecar failed:\n{}", log());
    let shown = String::from_utf8(output.stdout)?;
    let table = shown.split(ERASED).nth(1).with_context(|| format!("fewer than two tables; the log:\n{}", log()))?;
    // The sequence that moves the cursor to the top follows a table.
    Ok(table.rsplit_once("\x1b[").map_or(table, |(table, _)| table).replace('\r', ""))
}
