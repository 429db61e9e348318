//! Declared dependencies that no source of their package names.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde::Deserialize;
use xtask_common::{cargo, machine, tally::Tally};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
    metadata: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
}

impl Package {
    /// Returns the dependencies that no source names, except those in `package.metadata.unused`, which has the reasons.
    fn unused(&self) -> anyhow::Result<Vec<&str>> {
        let folder = Path::new(&self.manifest_path).parent().context("a manifest has a folder")?;
        let mut text = String::new();
        collect(folder, &mut text)?;
        let is_excepted =
            |name: &str| self.metadata.as_ref().is_some_and(|metadata| !metadata["unused"][name].is_null());
        let names = self.dependencies.iter().map(|dependency| dependency.rename.as_ref().unwrap_or(&dependency.name));
        Ok(names
            .map(String::as_str)
            .filter(|name| !is_named(&text, &name.replace('-', "_")) && !is_excepted(name))
            .collect())
    }
}

/// Appends every Rust file of a package. The folders of other packages do not count.
fn collect(folder: &Path, text: &mut String) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.join("Cargo.toml").exists() && !path.ends_with("target") {
                collect(&path, text)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Returns true if a text has a word.
fn is_named(text: &str, word: &str) -> bool {
    let is_letter = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word)
        .any(|(at, _)| !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + word.len()..].chars().next()))
}

/// Checks every package of the workspace.
pub fn check() -> anyhow::Result<Tally> {
    let mut command = cargo::command();
    command.args(["metadata", "--no-deps", "--format-version", "1", "--locked"]);
    let metadata: Metadata = serde_json::from_str(&machine::output(&mut command)?).context("`cargo metadata`")?;
    let mut tally = Tally::default();
    for package in &metadata.packages {
        let unused = package.unused()?;
        if unused.is_empty() {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            eprintln!("{} declares {} and does not use it: remove it from Cargo.toml", package.name, unused.join(", "));
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_whole_word() {
        assert!(is_named("use serde::Serialize;", "serde"));
        assert!(is_named("x = tokio;", "tokio"));
        assert!(!is_named("serde_json::json!()", "serde"));
        assert!(!is_named("my_serde::x", "serde"));
    }
}
