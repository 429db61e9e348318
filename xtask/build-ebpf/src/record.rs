//! The record of an object: hashes of the object and its sources, and the versions of the builder.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use xtask_common::hash;

use super::{
    builder::{Builder, Kind},
    object::functions,
};

/// The content of `NAME.bpf.toml`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// SHA-256 of the object.
    pub object: String,
    /// SHA-256 over the sources, see the module `sources`.
    pub sources: String,
    /// The builder of the object.
    pub builder: Pin,
    /// Functions that are not inlined, see [`functions`]. Calls are expensive, so a review must show a new one.
    pub functions: BTreeMap<String, usize>,
}

/// The versions of a builder.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The kind of toolchain.
    pub kind: Kind,
    /// Version of each component by the name of its package.
    pub versions: BTreeMap<String, String>,
}

impl Record {
    /// Returns the record of a new object.
    pub fn new(object: &[u8], sources: String, builder: &Builder) -> anyhow::Result<Self> {
        let builder = Pin { kind: builder.kind, versions: builder.versions.clone() };
        Ok(Self { object: hash::sha256(object), sources, builder, functions: functions(object)? })
    }

    /// Reads a committed record.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a valid record", path.display()))
    }

    /// Returns the content of the record's file. `object` is the object's file name.
    pub fn to_text(&self, object: &str) -> anyhow::Result<String> {
        let text = toml::to_string(self)?;
        Ok(format!("# What {object} is and what built it. Written by `cargo xtask build-ebpf`.\n{text}"))
    }
}

impl Pin {
    /// Describes the first difference from the versions of this machine; `None` if there is none.
    pub fn difference(&self, here: &BTreeMap<String, String>) -> Option<String> {
        let none = "absent".to_owned();
        self.versions.iter().find_map(|(part, pinned)| {
            let found = here.get(part).unwrap_or(&none);
            (found != pinned).then(|| format!("{part} is {found} here, {pinned} on record"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(versions: &[(&str, &str)]) -> Pin {
        let versions = versions.iter().map(|&(part, version)| (part.to_owned(), version.to_owned())).collect();
        Pin { kind: Kind::Debian, versions }
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let functions = BTreeMap::from([("f".into(), 1)]);
        let record = Record {
            object: "a".into(),
            sources: "b".into(),
            functions,
            builder: pin(&[("rustc-web", "1.96.0+dfsg1")]),
        };
        assert_eq!(toml::from_str::<Record>(&record.to_text("a.bpf.o").unwrap()).unwrap(), record);
    }

    #[test]
    fn a_difference_names_the_component() {
        let record = pin(&[("llvm-22", "22.1.8"), ("rustc-web", "1.96.0")]);
        assert_eq!(record.difference(&record.versions), None);
        let newer = pin(&[("llvm-22", "22.1.8"), ("rustc-web", "1.96.1")]).versions;
        assert_eq!(record.difference(&newer).unwrap(), "rustc-web is 1.96.1 here, 1.96.0 on record");
        let fewer = pin(&[("llvm-22", "22.1.8")]).versions;
        assert_eq!(record.difference(&fewer).unwrap(), "rustc-web is absent here, 1.96.0 on record");
    }
}
