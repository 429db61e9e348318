//! The initramfs of a guest: busybox, the modules needed to mount this machine's root, and the files of this run.

use std::{
    fs::{self, File},
    io::{BufWriter, Cursor},
    path::Path,
};

use anyhow::Context as _;
use cpio::{NewcBuilder, write_cpio};

use super::{modules::load_order, read, store::Cached};

/// Modules needed to mount virtiofs below a tmpfs, and to write to the ports.
const MODULES: &[&str] = &["virtio_pci", "virtio_console", "virtiofs", "overlay"];

const FOLDER: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;

/// Writes an initramfs with these files in its folder `/undercurrent`.
pub fn write(path: &Path, kernel: &Cached, busybox: &Path, files: &[(&str, Vec<u8>)]) -> anyhow::Result<()> {
    let mut entries: Vec<_> = ["bin", "modules", "undercurrent"].map(|name| entry(name, FOLDER, Vec::new())).into();
    entries.push(entry("init", EXECUTABLE, include_bytes!("guest/boot.sh").to_vec()));
    entries.push(entry("bin/busybox", EXECUTABLE, read(busybox)?));
    let dependencies = fs::read_to_string(kernel.modules.join("modules.dep")).with_context(|| {
        format!("{} has no modules.dep: remove the kernel from the cache", kernel.modules.display())
    })?;
    for (number, file) in load_order(&dependencies, MODULES).iter().enumerate() {
        // The guest loads the modules in the order of their file names.
        entries.push(entry(&format!("modules/{number:02}.ko"), EXECUTABLE, read(&kernel.modules.join(file))?));
    }
    entries.push(entry("undercurrent/init", EXECUTABLE, include_bytes!("guest/init.sh").to_vec()));
    for (name, contents) in files {
        entries.push(entry(&format!("undercurrent/{name}"), EXECUTABLE, contents.clone()));
    }
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    write_cpio(entries.into_iter(), BufWriter::new(file)).context("cannot write the initramfs")?;
    Ok(())
}

fn entry(name: &str, mode: u32, contents: Vec<u8>) -> (NewcBuilder, Cursor<Vec<u8>>) {
    (NewcBuilder::new(name).mode(mode), Cursor::new(contents))
}
