//! The BTF of a kernel that is not running, for tests of what reads it.

use std::path::Path;

use anyhow::Context as _;
use object::{Object as _, ObjectSection as _};

use super::{kernels::Kernel, read, store::Store, write};

/// Writes the raw BTF of a kernel's vmlinux to a file: the same bytes as `/sys/kernel/btf/vmlinux` in the guest.
pub fn write_to(kernel: &Kernel, output: &Path) -> anyhow::Result<()> {
    let vmlinux = Store::open()?.kernel(kernel)?.vmlinux;
    let bytes = read(&vmlinux)?;
    let file = object::File::parse(bytes.as_slice()).with_context(|| format!("cannot read {}", vmlinux.display()))?;
    let section = file.section_by_name(".BTF").with_context(|| format!("{} has no section .BTF", vmlinux.display()))?;
    write(output, section.data()?)
}
