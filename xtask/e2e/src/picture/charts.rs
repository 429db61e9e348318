//! Apache ECharts in Node.js.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde_json::Value;
use xtask_common::{hash, machine, packages};

/// The program and its dependency, with the hashes of all packages.
const FILES: [(&str, &str); 3] = [
    ("draw.js", include_str!("../../picture/draw.js")),
    ("package.json", include_str!("../../picture/package.json")),
    ("package-lock.json", include_str!("../../picture/package-lock.json")),
];

/// The folder of the cache with the program and its packages.
pub struct Charts(PathBuf);

impl Charts {
    /// Returns the program in the cache, and installs its packages if they are missing.
    pub fn install() -> anyhow::Result<Self> {
        if !machine::has("npm") {
            packages::install(&["nodejs", "npm"])?;
        }
        let inputs = FILES.map(|(_, text)| text).concat();
        let folder = machine::cache("charts")?.join(&hash::sha256(inputs.as_bytes())[..12]);
        if !folder.join("complete").exists() {
            fs::create_dir_all(&folder)?;
            FILES.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))?;
            machine::output(
                Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--silent"]).current_dir(&folder),
            )?;
            fs::write(folder.join("complete"), "")?;
        }
        Ok(Self(folder))
    }

    /// Draws a picture of a kind into a file.
    pub fn draw(&self, kind: &str, input: &Value, file: &Path) -> anyhow::Result<()> {
        let folder = tempfile::tempdir().context("cannot create a folder for the picture")?;
        let data = folder.path().join("input.json");
        fs::write(&data, input.to_string())?;
        let mut node = Command::new("node");
        node.arg(self.0.join("draw.js")).arg(kind).args([&data, file]).env("TZ", "UTC");
        machine::output(&mut node).with_context(|| format!("cannot draw {}", file.display()))?;
        Ok(())
    }
}
