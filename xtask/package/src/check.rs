//! Installs each package in clean roots, starts the sidecar, and removes the package.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use xtask_common::{machine, packages, tally::Tally};

use super::{
    Packages, VERSION,
    files::{self, Format},
    root::Root,
};

/// Debian 11, which has glibc 2.31, 12 and 13.
const RELEASES: [&str; 3] = ["bullseye", "bookworm", "trixie"];
/// Snapshots that a run of three seconds delivers at least.
const SNAPSHOTS: usize = 2;

/// Folders for completions, which belong to other packages of distributions with RPM.
const SHARED: [&str; 4] =
    ["/usr/share/fish", "/usr/share/fish/vendor_completions.d", "/usr/share/zsh", "/usr/share/zsh/site-functions"];
/// The highest accepted exposure of the unit, in tenths. `systemd-analyze security` of systemd 252 reports 36.
const EXPOSURE: &str = "--threshold=37";

/// Checks the packages and the unit.
pub fn run(built: &Packages) -> anyhow::Result<Tally> {
    ensure!(machine::is_root(), "the check installs packages in roots of Debian: run it as root");
    packages::install(&["rpm"])?;
    let debs = RELEASES.map(|release| (release, Format::Deb, built.deb.as_path()));
    // No root of a distribution with RPM can be had by Debian's tools. rpm installs into Debian's root.
    let checks = debs.into_iter().chain([("bookworm", Format::Rpm, built.rpm.as_path())]);
    exposure()?;
    let mut tally = Tally::passed(1);
    for (release, format, package) in checks {
        match check(release, format, package) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                println!("{format:?} in {release}: {error:#}");
                tally.failed += 1;
            }
        }
    }
    Ok(tally)
}

/// Checks that systemd accepts every setting of the unit, and that they restrict it.
fn exposure() -> anyhow::Result<()> {
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", EXPOSURE]);
    let output =
        analyze.arg(machine::workspace().join(files::UNIT)).output().context("cannot start systemd-analyze")?;
    let (table, warnings) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && warnings.is_empty(), "{} is exposed: {warnings}{table}", files::UNIT);
    Ok(())
}

fn check(release: &str, format: Format, package: &Path) -> anyhow::Result<()> {
    let root = Root::new(release)?;
    let before = root.listing()?;
    match format {
        Format::Deb => {
            fs::copy(package, root.path().join("package.deb")).context("cannot copy the package")?;
            root.output(&["dpkg", "--install", "/package.deb"])?;
            fs::remove_file(root.path().join("package.deb"))?;
        }
        // Debian's packages, which provide /bin/sh, are not in the database of rpm.
        Format::Rpm => _ = machine::output(rpm(&root).args(["--install", "--nodeps"]).arg(package))?,
    }
    installed(&root, format)?;
    started(&root)?;
    match format {
        Format::Deb => root.output(&["dpkg", "--purge", "undercurrent"])?,
        Format::Rpm => machine::output(rpm(&root).args(["--erase", "undercurrent"]))?,
    };
    let after = root.listing()?;
    let is_new = |path: &&String| before.binary_search(path).is_err();
    let is_shared = |path: &&String| format == Format::Rpm && SHARED.contains(&path.as_str());
    let remain: Vec<_> = after.iter().filter(is_new).filter(|path| !is_shared(path)).collect();
    ensure!(remain.is_empty(), "after the removal remain {remain:?}");
    println!("{format:?} in {release}: installed, started and removed");
    Ok(())
}

fn rpm(root: &Root) -> Command {
    let mut command = Command::new("rpm");
    command.args(["--force-debian", "--dbpath", "/var/lib/rpm", "--root"]).arg(root.path());
    command
}

/// Checks the installed files.
fn installed(root: &Root, format: Format) -> anyhow::Result<()> {
    for path in files::paths(format) {
        let path = root.path().join(&path[1..]);
        ensure!(path.metadata().is_ok_and(|file| file.len() > 0), "{} is missing or empty", path.display());
    }
    let enabled = root.path().join("etc/systemd/system/multi-user.target.wants/undercurrent.service");
    ensure!(enabled.symlink_metadata().is_err(), "the installation enabled the unit");
    let version = root.output(&["undercurrent", "--version"])?;
    ensure!(version.trim() == format!("undercurrent {VERSION}"), "the version is {version:?}");
    root.output(&["undercurrent", "config", "check", "/etc/undercurrent.yaml"]).map(drop)
}

/// Checks that the sidecar measures.
fn started(root: &Root) -> anyhow::Result<()> {
    let file = ["--config", "/etc/undercurrent.yaml"];
    root.output(&[&["undercurrent", "doctor", "--fail-on", "unusable"], &file[..]].concat())?;
    let run = ["undercurrent", "run", "--interval", "500ms", "--duration", "3s", "--output", "json"];
    let snapshots = root.output(&[&run, &file[..]].concat())?;
    let metrics = snapshots.lines().filter(|line| line.contains("resourceMetrics")).count();
    ensure!(metrics >= SNAPSHOTS, "{metrics} snapshots in three seconds:\n{snapshots}");
    Ok(())
}
