//! The files of the packages, staged as the project that the packaging tools read.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use xtask_common::machine;

/// A format of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Debian and its derivatives.
    Deb,
    /// Red Hat, SUSE and their derivatives.
    Rpm,
}

/// A file of a package.
struct Packaged {
    /// Its name in the staged project.
    source: &'static str,
    /// Its absolute path once it is installed.
    path: &'static str,
    /// The only format with this path, or `None` for all.
    only: Option<Format>,
}

impl Packaged {
    const fn new(source: &'static str, path: &'static str) -> Self {
        Self { source, path, only: None }
    }

    const fn only(self, format: Format) -> Self {
        Self { only: Some(format), ..self }
    }

    fn mode(&self) -> &'static str {
        if self.path.starts_with("/usr/bin/") { "755" } else { "644" }
    }

    /// True if upgrades keep the administrator's changes.
    fn is_configuration(&self) -> bool {
        self.path.starts_with("/etc/")
    }
}

/// The unit, relative to the checkout.
pub const UNIT: &str = "examples/systemd/undercurrent.service";

/// Every file of the packages.
const FILES: &[Packaged] = &[
    Packaged::new("undercurrent", "/usr/bin/undercurrent"),
    Packaged::new("undercurrent.yaml", "/etc/undercurrent.yaml"),
    Packaged::new("undercurrent.service", "/usr/lib/systemd/system/undercurrent.service"),
    Packaged::new("undercurrent.1.gz", "/usr/share/man/man1/undercurrent.1.gz"),
    Packaged::new("completions.bash", "/usr/share/bash-completion/completions/undercurrent"),
    Packaged::new("completions.fish", "/usr/share/fish/vendor_completions.d/undercurrent.fish"),
    // Debian's zsh does not read the folder that other distributions use.
    Packaged::new("completions.zsh", "/usr/share/zsh/vendor-completions/_undercurrent").only(Format::Deb),
    Packaged::new("completions.zsh", "/usr/share/zsh/site-functions/_undercurrent").only(Format::Rpm),
    Packaged::new("CHANGELOG.md", "/usr/share/doc/undercurrent/CHANGELOG.md"),
    Packaged::new("LICENSE-APACHE", "/usr/share/doc/undercurrent/LICENSE-APACHE"),
    Packaged::new("LICENSE-GPL2", "/usr/share/doc/undercurrent/LICENSE-GPL2"),
];

/// Returns the paths of a package's files once it is installed, without those that the packaging tool adds.
pub fn paths(format: Format) -> impl Iterator<Item = &'static str> {
    of(format).map(|file| file.path)
}

fn of(format: Format) -> impl Iterator<Item = &'static Packaged> {
    FILES.iter().filter(move |file| file.only.is_none_or(|only| only == format))
}

/// Writes the project of the packages into an empty folder.
pub fn stage(binary: &Path, folder: &Path) -> anyhow::Result<()> {
    let copy = |from: &Path, name: &str| {
        fs::copy(from, folder.join(name)).map(drop).with_context(|| format!("cannot copy {}", from.display()))
    };
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name} into {}", folder.display()))
    };
    copy(binary, "undercurrent")?;
    for file in ["CHANGELOG.md", "LICENSE-APACHE", "receiver-ebpf/LICENSE-GPL2"] {
        let path = machine::workspace().join(file);
        copy(&path, file.rsplit('/').next().unwrap_or(file))?;
    }
    let printed = |arguments: &[&str]| machine::output(Command::new(binary).args(arguments));
    write("undercurrent.yaml", &printed(&["config", "example"])?)?;
    for shell in ["bash", "fish", "zsh"] {
        write(&format!("completions.{shell}"), &printed(&["completions", shell])?)?;
    }
    write("undercurrent.1", &printed(&["man"])?)?;
    // Without the name and time of the file, so that equal pages have equal archives.
    machine::run(Command::new("gzip").args(["-9", "--no-name", "undercurrent.1"]).current_dir(folder))?;
    write("undercurrent.service", &unit()?)?;
    for format in ["deb", "rpm"] {
        let scripts = machine::workspace().join("xtask/package/scripts").join(format);
        machine::run(Command::new("cp").arg("-r").arg(&scripts).arg(folder.join(format)))?;
    }
    fs::create_dir(folder.join("src")).and_then(|()| File::create(folder.join("src/lib.rs")))?;
    write("Cargo.toml", &manifest()?)?;
    // The packaging tools read the metadata of a locked project.
    let mut lock = Command::new("cargo");
    machine::run(lock.args(["generate-lockfile", "--offline", "--quiet"]).current_dir(folder).stdout(Stdio::null()))
}

/// Returns the example's unit with the path of the packaged binary.
fn unit() -> anyhow::Result<String> {
    const LOCAL: &str = "ExecStart=/usr/local/bin/undercurrent ";
    let path = machine::workspace().join(UNIT);
    let unit = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(unit.matches(LOCAL).count() == 1, "{} has not exactly one line {LOCAL}", path.display());
    Ok(unit.replace(LOCAL, "ExecStart=/usr/bin/undercurrent "))
}

#[derive(Serialize)]
struct Manifest {
    package: Package,
    workspace: toml::Table,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Package {
    name: &'static str,
    version: &'static str,
    edition: &'static str,
    description: &'static str,
    license: &'static str,
    repository: &'static str,
    metadata: Metadata,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    deb: Deb,
    generate_rpm: Rpm,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Deb {
    maintainer: &'static str,
    copyright: &'static str,
    extended_description: &'static str,
    section: &'static str,
    depends: &'static str,
    maintainer_scripts: &'static str,
    assets: Vec<[&'static str; 3]>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
struct Rpm {
    #[serde(rename = "auto-req")]
    auto_req: &'static str,
    post_install_script: &'static str,
    pre_uninstall_script: &'static str,
    post_uninstall_script: &'static str,
    assets: Vec<Asset>,
}

#[derive(Serialize)]
struct Asset {
    source: &'static str,
    dest: &'static str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'static str>,
}

const DESCRIPTION: &str = "An OpenTelemetry sidecar that measures what the Linux kernel's network stack costs";
const MORE: &str = "Programs in the kernel measure latency, CPU time and energy of the network stack by workload, and a collector \
                    receives the measurements as OpenTelemetry. `undercurrent doctor` prints the signals that this machine supports.";

/// Returns the manifest with the files of both formats.
fn manifest() -> anyhow::Result<String> {
    let deb = Deb {
        maintainer: "The Undercurrent authors <undercurrent@localhost>",
        copyright: "The Undercurrent authors",
        extended_description: MORE,
        section: "net",
        // The binary is static.
        depends: "",
        maintainer_scripts: "deb",
        assets: of(Format::Deb).map(|file| [file.source, file.path, file.mode()]).collect(),
    };
    let asset = |file: &'static Packaged| Asset {
        source: file.source,
        dest: file.path,
        mode: file.mode(),
        config: file.is_configuration().then_some("noreplace"),
    };
    let generate_rpm = Rpm {
        auto_req: "no",
        post_install_script: "rpm/post",
        pre_uninstall_script: "rpm/preun",
        post_uninstall_script: "rpm/postun",
        assets: of(Format::Rpm).map(asset).collect(),
    };
    let package = Package {
        name: "undercurrent",
        version: crate::VERSION,
        edition: "2024",
        description: DESCRIPTION,
        license: env!("CARGO_PKG_LICENSE"),
        repository: env!("CARGO_PKG_REPOSITORY"),
        metadata: Metadata { deb, generate_rpm },
    };
    // The empty table separates the project from a workspace in a parent folder.
    toml::to_string(&Manifest { package, workspace: toml::Table::new() }).context("cannot write the packages' manifest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_unit_starts_the_packaged_binary() {
        let unit = unit().unwrap();
        assert!(paths(Format::Deb).chain(paths(Format::Rpm)).all(|path| path.starts_with('/')));
        for path in ["/usr/bin/undercurrent", "/etc/undercurrent.yaml"] {
            assert!(unit.contains(path), "{path} in {unit}");
            assert_eq!(FILES.iter().filter(|file| file.path == path).count(), 1, "{path}");
        }
        assert!(!unit.contains("/usr/local"), "{unit}");
    }

    #[test]
    fn both_formats_have_every_file_and_keep_changed_configuration() {
        let manifest: toml::Table = toml::from_str(&manifest().unwrap()).unwrap();
        let metadata = &manifest["package"]["metadata"];
        let [deb, rpm] = ["deb", "generate-rpm"].map(|format| metadata[format]["assets"].as_array().unwrap());
        assert_eq!((deb.len(), rpm.len()), (paths(Format::Deb).count(), paths(Format::Rpm).count()));
        let kept: Vec<_> = rpm.iter().filter(|file| file.get("config").is_some()).collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0]["dest"].as_str(), Some("/etc/undercurrent.yaml"));
        assert!(
            deb.iter().any(|file| file[1].as_str() == Some("/usr/bin/undercurrent") && file[2].as_str() == Some("755"))
        );
    }
}
