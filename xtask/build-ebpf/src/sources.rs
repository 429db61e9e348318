//! One hash over all inputs of the object, for machines without the reference builder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use toml::Value;
use xtask_common::{hash, machine};

use super::builder::{FLAGS, target};

/// The package of the kernel side.
pub const PACKAGE: &str = "undercurrent-ebpf";

/// Returns a SHA-256 over the inputs of a binary: the package's manifest and sources, the settings in the workspace's manifest,
/// the locked versions of the dependencies, and the builder's arguments.
pub fn hash(binary: &str) -> anyhow::Result<String> {
    let root = machine::workspace();
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
    let mut parts = BTreeMap::new();
    for file in files()? {
        parts.insert(format!("file {file}"), read(&file)?);
    }
    parts.insert("manifest".into(), settings(&read("Cargo.toml")?)?);
    for package in closure(&read("Cargo.lock")?)? {
        parts.insert(format!("package {} {}", package.name, package.version), package.checksum.unwrap_or_default());
    }
    parts.insert("arguments".into(), [target(binary).join(" "), FLAGS.join(" ")].join(" "));
    Ok(digest(&parts))
}

/// Hashes the parts with their lengths, so that different parts never give equal input.
fn digest(parts: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for text in parts.iter().flat_map(|(name, content)| [name, content]) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash::hex(&hash.finalize())
}

/// Returns the manifest and every Rust file of the package, relative to the workspace.
fn files() -> anyhow::Result<BTreeSet<String>> {
    let root = machine::workspace();
    let mut files = BTreeSet::from(["receiver-ebpf/Cargo.toml".to_owned()]);
    for entry in walkdir::WalkDir::new(root.join("receiver-ebpf/src")) {
        let entry = entry.context("cannot list receiver-ebpf/src")?;
        if entry.file_type().is_file() && entry.path().extension().is_some_and(|extension| extension == "rs") {
            let relative = entry.path().strip_prefix(root)?;
            files.insert(relative.to_str().with_context(|| format!("{relative:?} is not UTF-8"))?.to_owned());
        }
    }
    Ok(files)
}

/// Returns the settings in the workspace's manifest that apply to the package: the inherited keys and its profile.
fn settings(manifest: &str) -> anyhow::Result<String> {
    let manifest: Value = toml::from_str(manifest).context("Cargo.toml is not TOML")?;
    let mut lines = BTreeSet::new();
    for path in [["workspace", "package"], ["profile", "release"], ["profile", "ebpf"]] {
        let value = path.iter().try_fold(&manifest, |value, key| value.get(key));
        flatten(&path.join("."), value.with_context(|| format!("Cargo.toml has no [{}]", path.join(".")))?, &mut lines);
    }
    Ok(lines.into_iter().collect::<Vec<_>>().join("\n"))
}

fn flatten(path: &str, value: &Value, lines: &mut BTreeSet<String>) {
    match value {
        Value::Table(table) => table.iter().for_each(|(key, value)| flatten(&format!("{path}.{key}"), value, lines)),
        leaf => drop(lines.insert(format!("{path} = {leaf}"))),
    }
}

/// A package in `Cargo.lock`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// The locked version.
    pub version: String,
    /// Checksum of the package's archive; `None` for members of the workspace.
    pub checksum: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

/// Returns the package of the kernel side and its transitive dependencies, with their locked versions.
pub fn closure(lock: &str) -> anyhow::Result<BTreeSet<Package>> {
    let lock: Lock = toml::from_str(lock).context("Cargo.lock is not a lock file")?;
    let mut wanted = vec![PACKAGE.to_owned()];
    let mut found = BTreeSet::new();
    while let Some(dependency) = wanted.pop() {
        // A dependency is "name", or "name version" where the lock file has several versions.
        let mut words = dependency.split(' ');
        let (name, version) = (words.next(), words.next());
        let mut matching = lock.package.iter().filter(|package| {
            Some(package.name.as_str()) == name && version.is_none_or(|version| package.version == version)
        });
        let Some(package) = matching.next() else { bail!("Cargo.lock has no {dependency}") };
        if found.insert(package.clone()) {
            wanted.extend(package.dependencies.iter().cloned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
        version = 4
        [[package]]
        name = "undercurrent-ebpf"
        version = "0.1.0"
        dependencies = ["syn 2.0.0", "zerocopy"]
        [[package]]
        name = "syn"
        version = "1.0.0"
        checksum = "old"
        [[package]]
        name = "syn"
        version = "2.0.0"
        checksum = "new"
        [[package]]
        name = "tokio"
        version = "1.54.0"
        checksum = "not ours"
        [[package]]
        name = "zerocopy"
        version = "0.8.0"
        checksum = "zero"
        dependencies = ["syn 2.0.0"]
    "#;

    #[test]
    fn the_closure_contains_only_dependencies() {
        let names: Vec<_> = closure(LOCK).unwrap().into_iter().map(|p| (p.name, p.checksum)).collect();
        let expected = [("syn", Some("new")), ("undercurrent-ebpf", None), ("zerocopy", Some("zero"))];
        assert_eq!(names, expected.map(|(name, checksum)| (name.to_owned(), checksum.map(str::to_owned))));
    }

    #[test]
    fn a_lock_file_without_the_package_is_an_error() {
        assert!(closure("package = []").unwrap_err().to_string().contains(PACKAGE));
    }

    #[test]
    fn settings_follow_the_profile_and_no_other_table() {
        let manifest = |rest: &str| {
            format!("[workspace.package]\nedition = '2024'\n[profile.release]\nlto = 'thin'\n[profile.ebpf]\n{rest}")
        };
        let plain = settings(&manifest("opt-level = 3")).unwrap();
        assert_ne!(plain, settings(&manifest("opt-level = 2")).unwrap());
        assert_eq!(plain, settings(&manifest("opt-level = 3\n[workspace.lints.rust]\nmissing_docs = 'warn'")).unwrap());
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let parts = |name: &str, content: &str| BTreeMap::from([(name.to_owned(), content.to_owned())]);
        assert_ne!(digest(&parts("ab", "c")), digest(&parts("a", "bc")));
    }

    #[test]
    fn the_sources_of_this_workspace_have_a_hash() {
        assert!(files().unwrap().contains("receiver-ebpf/src/main.rs"));
        assert_eq!(hash("undercurrent").unwrap(), hash("undercurrent").unwrap());
        assert_ne!(hash("undercurrent").unwrap(), hash("baseline").unwrap());
    }
}
