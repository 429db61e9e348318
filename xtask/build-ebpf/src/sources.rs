//! One hash over all inputs of the object, for machines without the reference builder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use toml::Value;
use xtask_common::{hash, machine};

use super::{
    builder::{FLAGS, target},
    lock::closure,
};

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

#[cfg(test)]
mod tests {
    use super::*;

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
