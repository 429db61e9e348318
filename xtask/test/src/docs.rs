//! `cargo xtask docs`: the generated pages of the documentation, and the picture of the live table.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use xtask_common::{artifacts, cargo, machine, traffic::Traffic, truth};

/// Options of `cargo xtask docs`.
#[derive(clap::Args)]
pub struct Options {
    /// Also draw docs/images/table.svg anew: run the sidecar for some seconds while messages go over loopback. Needs root
    #[arg(long)]
    picture: bool,
    /// Also write the measured errors in this file into docs/truth.md: tests append them to the file that UNDERCURRENT_TRUTH names
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
}

/// Path of the picture, relative to the checkout.
const PICTURE: &str = "docs/images/table.svg";
/// Sets the size of the terminal that shows the table.
const TERMINAL: &str = "stty cols 102 rows 60";
/// The sequence that erases a frame before the next one is drawn.
const ERASED: &str = "\x1b[J";

/// Writes every generated page, by running the tests that compare the pages with the code.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut tests = cargo::command();
    tests.args(["test", "--quiet", "--package", "undercurrent", "--test", "configuration", "--test", "catalogue"]);
    machine::run(tests.arg("committed").env("UPDATE_DOCS", "1"))?;
    options.truth.as_deref().map_or(Ok(()), truth::write_from)?;
    if options.picture { draw() } else { Ok(()) }
}

/// Draws the last frame of a real run as its terminal showed it.
fn draw() -> anyhow::Result<()> {
    ensure!(
        machine::is_root(),
        "the picture shows a real run, and loading eBPF programs needs root: run it through sudo"
    );
    let mut build = cargo::command();
    build.args(["build", "--locked", "--package", "undercurrent"]);
    machine::run(&mut build)?;
    let binary = artifacts::target_directory()?.join("debug/undercurrent");
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("{TERMINAL}; exec {} --duration 6500ms 2>/dev/null", binary.display()))
        .arg("/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
        .spawn()
        .context("cannot run script(1)")?;
    let (mut output, mut shown) = (BufReader::new(terminal.stdout.take().context("it has a pipe")?), Vec::new());
    // Traffic starts after the first frame: sockets created under the running sidecar have an owner from the first packet on.
    while !shown.ends_with(ERASED.as_bytes()) && output.read_until(b'J', &mut shown)? > 0 {}
    let traffic = Traffic::start()?;
    output.read_to_end(&mut shown)?;
    traffic.stop()?;
    ensure!(terminal.wait()?.success(), "the sidecar failed; `cargo xtask run` says why");
    let shown = String::from_utf8(shown)?;
    let frames: Vec<&str> = shown.split(ERASED).collect();
    // The last frame covers less than an interval, because the run ends in it.
    let frame = frames.iter().rev().nth(1).context("the table was drawn fewer than two times")?;
    let frame = frame.rsplit_once("\x1b[").map_or(*frame, |(frame, _)| frame).replace('\r', "");
    let picture = anstyle_svg::Term::new().render_svg(&frame);
    let path = machine::workspace().join(PICTURE);
    fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))
}
