//! The BTF files of the running kernel.

use std::{fs, io, path::PathBuf};

/// The name of the kernel's BTF. A module's BTF has the name that `lsmod` prints.
pub const VMLINUX: &str = "vmlinux";

/// The error of a BTF file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: the kernel needs CONFIG_DEBUG_INFO_BTF (and _MODULES, for modules) and a mounted /sys", path.display())]
pub struct ReadError {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub source: io::Error,
}

/// Reads the raw BTF of the running kernel ([`VMLINUX`]) or of a loaded module. The kernel's BTF takes some megabytes;
/// drop it after use.
///
/// # Errors
/// If the kernel was built without BTF, the module is not loaded, or `/sys` is not mounted.
pub fn read(name: &str) -> Result<Vec<u8>, ReadError> {
    let path = PathBuf::from("/sys/kernel/btf").join(name);
    fs::read(&path).map_err(|source| ReadError { path, source })
}
