//! The types of kernels, for tests.

/// A kernel's reduced BTF; see `fixtures/btf/README.md`.
pub struct Kernel {
    pub release: &'static str,
    pub raw: &'static [u8],
}

macro_rules! kernels {
    ($($release:literal),+) => { [$(Kernel { release: $release, raw: include_bytes!(concat!("../../fixtures/btf/", $release, ".btf")) }),+] };
}

/// The kernels of the fixtures, oldest first.
pub const KERNELS: [Kernel; 5] = kernels!["5.10", "6.1", "6.12", "6.18", "7.2"];
