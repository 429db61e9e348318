//! What a built object must hold to be of use.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, ensure};
use aya_obj::{Object, Program};
use rustc_demangle::demangle;
use xtask_common::machine;

/// Drops the debug information, which holds most of the bytes and the builder's paths; BTF stays.
pub fn stripped(strip: &Path, linked: &Path) -> anyhow::Result<Vec<u8>> {
    let output = linked.with_extension("stripped");
    machine::output(Command::new(strip).arg("-g").arg("-o").arg(&output).arg(linked))?;
    fs::read(&output).with_context(|| format!("cannot read {}", output.display()))
}

/// Refuses an object that names a folder of the machine it was built on: no other machine could make the same bytes.
pub fn refuse_path(bytes: &[u8], folder: &Path) -> anyhow::Result<()> {
    let path = folder.as_os_str().as_bytes();
    let named = path.len() > 1 && bytes.windows(path.len()).any(|window| window == path);
    ensure!(
        !named,
        "the object names {}: a path is not remapped, so its bytes depend on this machine",
        folder.display()
    );
    Ok(())
}

/// Parses the object as the loader will and sums it up in words.
pub fn inspect(bytes: &[u8]) -> anyhow::Result<String> {
    let object = Object::parse(bytes).context("aya cannot parse the object")?;
    ensure!(object.btf.is_some(), "the object has no BTF: was it linked with --btf?");
    ensure!(object.btf_ext.is_some(), "the object has no .BTF.ext: was it linked with --btf?");
    ensure!(!object.programs.is_empty(), "the object holds no program");
    Ok(format!("{} programs, {} maps, {} bytes", object.programs.len(), object.maps.len(), bytes.len()))
}

/// How many instructions the functions have that are no programs, by name: what the compiler did not put where it is called,
/// whoever asked for that. A call took 15 ns of an event on the test host, whose returns are guarded against speculation.
pub fn functions(bytes: &[u8]) -> anyhow::Result<BTreeMap<String, usize>> {
    let object = Object::parse(bytes).context("aya cannot parse the object")?;
    let programs: HashSet<_> = object.programs.values().map(Program::function_key).collect();
    let called = object.functions.iter().filter(|(key, _)| !programs.contains(key));
    let named = called.map(|(_, function)| (format!("{:#}", demangle(&function.name)), function.instructions.len()));
    Ok(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_machine_is_refused() {
        let folder = Path::new("/home/someone");
        assert!(refuse_path(b"\0/home/someone/.cargo/registry\0", folder).is_err());
        assert!(refuse_path(b"\0aya-ebpf-0.2.1/src/lib.rs\0", folder).is_ok());
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(inspect(b"not an ELF file").is_err());
    }

    #[test]
    fn an_object_without_btf_is_refused() {
        let bytes = fs::read(machine::workspace().join("receiver/ebpf/undercurrent.bpf.o")).unwrap();
        assert!(inspect(&bytes).is_ok());
        // The loader finds sections by name alone: renamed in the string table, they are gone.
        let renamed = replaced(&bytes, b".BTF.ext\0", b".XXX.ext\0");
        assert!(inspect(&renamed).unwrap_err().to_string().contains(".BTF.ext"));
    }

    fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let at = bytes.windows(from.len()).rposition(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    }
}
