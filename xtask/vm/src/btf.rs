//! Extracts the BTF of a kernel without booting it, for tests of BTF parsers.

use std::path::Path;

use anyhow::Context as _;
use object::{Object as _, ObjectSection as _};

use super::{kernels::Kernel, read, store::Store, write};

/// Writes the raw BTF of a kernel's vmlinux to a file. The guest has identical bytes in `/sys/kernel/btf/vmlinux`.
pub fn write_to(kernel: &Kernel, output: &Path) -> anyhow::Result<()> {
    let vmlinux = Store::open()?.kernel(kernel)?.vmlinux;
    let bytes = read(&vmlinux)?;
    let file = object::File::parse(bytes.as_slice()).with_context(|| format!("cannot read {}", vmlinux.display()))?;
    let section = file.section_by_name(".BTF").with_context(|| format!("{} has no section .BTF", vmlinux.display()))?;
    write(output, section.data()?)
}
