//! Where a running kernel keeps its BTF.

use std::{fs, io, path::PathBuf};

/// The name of the kernel's own BTF; modules are named as `lsmod` has them.
pub const VMLINUX: &str = "vmlinux";

/// The running kernel's BTF could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: the kernel needs CONFIG_DEBUG_INFO_BTF (and _MODULES, for modules) and a mounted /sys", path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub source: io::Error,
}

/// Reads the raw BTF of the running kernel ([`VMLINUX`]) or of one of its loaded modules: some megabytes for the
/// kernel, to be dropped after use.
///
/// # Errors
/// When the kernel was built without BTF, the module is not loaded, or `/sys` is not mounted.
pub fn read(name: &str) -> Result<Vec<u8>, ReadError> {
    let path = PathBuf::from("/sys/kernel/btf").join(name);
    fs::read(&path).map_err(|source| ReadError { path, source })
}
