//! The live table in a terminal.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use xtask_common::machine;

use crate::{
    compose::Stack,
    engines::{Client as _, Docker},
};

/// The signals in the picture. The others would fill a second screen.
const SETTINGS: &str = "\
signals:
  cpu_throttled: {enabled: false}
  network_drops: {enabled: false}
  receive_segments: {enabled: false}
  softnet: {enabled: false}
  tcp_listen_overflows: {enabled: false}
  tcp_retransmits: {enabled: false}
  tcp_rtt: {enabled: false}
";
/// The path of the settings in the container.
const CONFIG: &str = "/picture.yaml";
/// Sets the size of the terminal, and runs the sidecar in its container until the second table. The last table covers less than an interval.
const TERMINAL: &str = r#"stty cols 118 rows 74; exec /usr/bin/docker exec --interactive --tty --env RUST_LOG=off "$CONTAINER" \
    undercurrent run --config "$CONFIG" --output table --interval 5s --duration 12s"#;
/// The sequence that erases a table before the next one is drawn.
const ERASED: &str = "\x1b[J";

/// Returns the second table of a run beside the sidecar of the example, in its container.
pub fn table(engine: &Docker, stack: &Stack<'_>) -> anyhow::Result<String> {
    let container = machine::output(stack.compose().args(["ps", "--quiet", "sidecar"]))?.trim().to_owned();
    let config = tempfile::NamedTempFile::new().context("cannot create the settings of the picture")?;
    fs::write(config.path(), SETTINGS)?;
    let target = format!("{container}:{CONFIG}");
    machine::output(engine.client().arg("cp").arg(config.path()).arg(target))?;
    let mut script = Command::new("script");
    let variables = engine.client();
    script.envs(variables.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = script
        .args(["--quiet", "--return", "--command", TERMINAL, "/dev/null"])
        .env("CONTAINER", &container)
        .env("CONFIG", CONFIG)
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .output()
        .context("cannot run script(1)")?;
    let shown = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "the sidecar failed:\n{shown}");
    let table = shown.split(ERASED).nth(1).with_context(|| format!("fewer than two tables:\n{shown}"))?;
    // The sequence that moves the cursor to the top follows a table.
    Ok(table.rsplit_once("\x1b[").map_or(table, |(table, _)| table).replace('\r', ""))
}
