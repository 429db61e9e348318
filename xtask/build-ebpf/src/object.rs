//! Post-processing and checks of a built object.

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

/// Returns the object without debug information, which is most of its bytes and contains paths of the builder. BTF stays.
pub fn stripped(strip: &Path, linked: &Path) -> anyhow::Result<Vec<u8>> {
    let output = linked.with_extension("stripped");
    machine::output(Command::new(strip).arg("-g").arg("-o").arg(&output).arg(linked))?;
    fs::read(&output).with_context(|| format!("cannot read {}", output.display()))
}

/// Returns an error if the object contains the path of a folder: another machine could not reproduce its bytes.
pub fn refuse_path(bytes: &[u8], folder: &Path) -> anyhow::Result<()> {
    let path = folder.as_os_str().as_bytes();
    let named = path.len() > 1 && bytes.windows(path.len()).any(|window| window == path);
    ensure!(
        !named,
        "the object contains the path {}: the path is not remapped, so the bytes depend on this machine",
        folder.display()
    );
    Ok(())
}

/// Parses the object like the loader and returns a summary.
pub fn inspect(bytes: &[u8]) -> anyhow::Result<String> {
    let object = Object::parse(bytes).context("aya cannot parse the object")?;
    ensure!(object.btf.is_some(), "the object has no BTF: was it linked with --btf?");
    ensure!(object.btf_ext.is_some(), "the object has no .BTF.ext: was it linked with --btf?");
    ensure!(!object.programs.is_empty(), "the object has no program");
    Ok(format!("{} programs, {} maps, {} bytes", object.programs.len(), object.maps.len(), bytes.len()))
}

/// Returns the number of instructions of each function that is not a program, by name: the functions that the compiler did not
/// inline. A call costs 15 ns per event on the test host, which guards returns against speculation.
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
    fn a_path_of_the_machine_is_an_error() {
        let folder = Path::new("/home/someone");
        assert!(refuse_path(b"\0/home/someone/.cargo/registry\0", folder).is_err());
        assert!(refuse_path(b"\0aya-ebpf-0.2.1/src/lib.rs\0", folder).is_ok());
    }

    #[test]
    fn a_file_without_elf_header_is_an_error() {
        assert!(inspect(b"not an ELF file").is_err());
    }

    #[test]
    fn an_object_without_btf_is_an_error() {
        let bytes = fs::read(machine::workspace().join("receiver/ebpf/undercurrent.bpf.o")).unwrap();
        assert!(inspect(&bytes).is_ok());
        // The loader finds sections by name, so a renamed section is missing.
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
