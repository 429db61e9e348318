//! `cargo xtask docs`: the generated pages of the documentation, and the pictures of the README.

use std::{path::PathBuf, process::Command};

use xtask_common::{artifacts, cargo, machine, truth};

/// Options of `cargo xtask docs`.
#[derive(clap::Args)]
pub struct Options {
    /// Also draw the pictures of the README and the table in docs/reading.md anew: run the Docker Compose example for some minutes, and the
    /// sidecar beside traffic over loopback. Needs root and Node.js
    #[arg(long)]
    picture: bool,
    /// Also write the measured errors in this file into docs/truth.md: tests append them to the file that UNDERCURRENT_TRUTH names
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
}

/// Folder of the pictures, relative to the checkout.
const PICTURES: &str = "docs/images";
/// Path of the page with a table, relative to the checkout.
const PAGE: &str = "docs/reading.md";

/// Writes every generated page, by running the tests that compare the pages with the code.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut tests = cargo::command();
    tests.args(["test", "--quiet", "--package", "undercurrent", "--test", "configuration", "--test", "catalogue"]);
    machine::run(tests.arg("committed").env("UPDATE_DOCS", "1"))?;
    options.truth.as_deref().map_or(Ok(()), truth::write_from)?;
    if options.picture { draw() } else { Ok(()) }
}

/// Draws the pictures of a real run.
fn draw() -> anyhow::Result<()> {
    let mut build = cargo::command();
    build.args(["build", "--locked", "--package", "undercurrent"]);
    machine::run(&mut build)?;
    let sidecar = artifacts::target_directory()?.join("debug/undercurrent");
    let mut command = Command::new(artifacts::member("xtask-e2e")?);
    command.args(["e2e", "picture", "--sidecar"]).arg(sidecar);
    machine::run(command.args([PICTURES, PAGE].map(|path| machine::workspace().join(path))))
}
