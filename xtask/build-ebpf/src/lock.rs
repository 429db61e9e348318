//! The locked dependencies of the kernel side.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// The package of the kernel side.
pub const PACKAGE: &str = "undercurrent-ebpf";

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
}
