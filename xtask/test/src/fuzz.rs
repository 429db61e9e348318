//! The fuzz targets, with libFuzzer.

use std::{ffi::OsString, fs, path::PathBuf, process::Command};

use anyhow::Context as _;
use xtask_common::{artifacts, cargo, machine, tally::Tally};

/// The time of a target, in seconds.
const SECONDS: u32 = 30;
/// Coverage by counters of basic blocks, which libFuzzer reads. The options are those of cargo-fuzz (0.13), without sanitizers, so
/// stable Rust accepts them.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";
/// Each target with the folder of its first inputs below `receiver/fixtures`.
const TARGETS: [(&str, Option<&str>); 8] = [
    ("fuzz_accept", None),
    ("fuzz_btf", Some("btf")),
    ("fuzz_cgroups", Some("cgroups")),
    ("fuzz_fields", None),
    ("fuzz_messages", None),
    ("fuzz_reader", None),
    ("fuzz_traceparent_http1", Some("traceparent/http1")),
    ("fuzz_traceparent_http2", Some("traceparent/http2")),
];

/// Builds every target, and runs each for a short time. A failure is an input that panics, hangs or takes more than 2 GB.
pub fn run() -> anyhow::Result<Tally> {
    let folder = artifacts::target_directory()?.join("fuzz");
    // Build scripts and procedural macros are not instrumented.
    let host = host()?;
    let mut build = cargo::command();
    build.args([
        "build",
        "--profile",
        "fuzz",
        "--locked",
        "--quiet",
        "--package",
        "undercurrent-fuzz",
        "--bins",
        "--target",
        &host,
    ]);
    machine::run(build.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &folder))?;
    let mut tally = Tally::default();
    for (target, seeds) in TARGETS {
        let corpus = folder.join("corpus").join(target);
        fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
        let seeds = seeds.map(|seeds| machine::workspace().join("receiver/fixtures").join(seeds));
        if fuzz(folder.join(&host).join("fuzz").join(target), [Some(corpus), seeds].into_iter().flatten().collect())? {
            tally.passed += 1;
        } else {
            tally.failed += 1;
        }
    }
    Ok(tally)
}

/// Returns the target triple of this machine.
fn host() -> anyhow::Result<String> {
    let version = machine::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` names no host")
}

/// Runs a target with these folders of inputs. It writes new inputs to the first one.
fn fuzz(target: PathBuf, inputs: Vec<PathBuf>) -> anyhow::Result<bool> {
    let artifacts = target.with_extension("crash-");
    let mut prefix = OsString::from("-artifact_prefix=");
    prefix.push(&artifacts);
    let mut command = Command::new(&target);
    command.arg(format!("-max_total_time={SECONDS}")).args(["-timeout=10", "-rss_limit_mb=2048", "-verbosity=0"]);
    let output =
        command.arg(prefix).args(inputs).output().with_context(|| format!("cannot start {}", target.display()))?;
    if !output.status.success() {
        eprintln!("{} fails: {}", target.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}
