//! Image archives in the format of `docker save`, which every engine can import.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;
use tempfile::TempDir;
use xtask_common::machine;

/// The configuration of an image.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    /// The user of the program.
    pub user: &'static str,
    /// The program and its first arguments.
    pub entrypoint: Vec<&'static str>,
    /// Default arguments, which a container can replace.
    pub cmd: Vec<&'static str>,
}

/// The archive of an image. The file is deleted on drop.
pub struct Archive {
    folder: TempDir,
}

impl Archive {
    /// Creates an archive with one layer from a tree of files.
    pub fn create(tree: &Path, config: &Config, tag: &str) -> anyhow::Result<Self> {
        let archive = Self { folder: tempfile::tempdir().context("cannot create a folder for an image")? };
        archive.pack("layer.tar", tree, &["."])?;
        let digest = machine::output(Command::new("sha256sum").arg(archive.at("layer.tar")))?;
        let digest = digest.split_whitespace().next().context("sha256sum printed nothing")?;
        let layers = json!({ "type": "layers", "diff_ids": [format!("sha256:{digest}")] });
        let image = json!({ "architecture": architecture(), "os": "linux", "config": config, "rootfs": layers });
        let manifest = json!([{ "Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"] }]);
        fs::write(archive.at("config.json"), image.to_string())?;
        fs::write(archive.at("manifest.json"), manifest.to_string())?;
        archive.pack("image.tar", archive.folder.path(), &["manifest.json", "config.json", "layer.tar"])?;
        Ok(archive)
    }

    /// Returns the path of the archive.
    pub fn path(&self) -> PathBuf {
        self.at("image.tar")
    }

    fn at(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn pack(&self, file: &str, folder: &Path, members: &[&str]) -> anyhow::Result<()> {
        let mut tar = Command::new("tar");
        tar.arg("--create").arg("--file").arg(self.at(file)).arg("--directory").arg(folder).args(members);
        machine::output(&mut tar).map(drop)
    }
}

/// Returns the name of this machine's architecture in images.
fn architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
