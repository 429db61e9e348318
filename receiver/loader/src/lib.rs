//! The loader: creates the maps, loads, attaches and detaches programs, and writes maps that cannot be mapped into memory. Its
//! only external inputs are the kernel's BTF, the symbols of functions, and the requests of the worker.

use undercurrent_base::{causes, descriptors, privileges};
use undercurrent_host::cgroup;
use undercurrent_options as options;

pub mod attach;
pub mod btf;
mod calls;
mod cast;
pub mod constants;
mod counters;
pub mod cpu_events;
pub mod drops;
pub mod extra;
pub mod fields;
mod globals;
mod instructions;
pub mod loader;
pub mod object;
pub mod plan;
mod refusal;
mod registers;
mod resolved;
pub mod service;
pub mod statistics;
mod symbols;
mod task_clock;
pub mod timestamping;

use std::{error::Error, io};

use aya::EbpfError;
use undercurrent_kernel::{Kernel, KernelError, LoadOptions, client::Client, host::Host};

pub use self::service::Service;
use crate::{causes::chain, cgroup::MemoryLimit};

/// An error after which nothing can be measured on this kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel has no BTF.
    #[error(
        "{0}; this needs a kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian 11, Ubuntu 20.10, RHEL 8.2 and later have it)"
    )]
    NoBtf(#[from] btf::ReadError),
    /// The kernel's BTF is invalid.
    #[error("the kernel's BTF in /sys/kernel/btf/vmlinux is damaged: {0}")]
    Btf(#[from] btf::BtfError),
    /// The embedded eBPF object is damaged.
    #[error("the embedded eBPF object is damaged: {0}; rebuild Undercurrent")]
    Object(#[from] globals::DeclarationError),
    /// The numbers cannot be written into the embedded eBPF object.
    #[error("the embedded eBPF object is damaged: {0}; rebuild Undercurrent")]
    Constants(#[from] constants::ConstantError),
    /// The kernel refused the maps.
    #[error("{}", maps_refused(.0, .1))]
    Maps(#[source] Box<EbpfError>, Vec<String>),
    /// The descriptors of the maps cannot be duplicated.
    #[error("cannot duplicate the descriptors of the maps: {0}")]
    Descriptors(#[source] io::Error),
    /// The loaded programs cannot be used.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Creates the maps and prepares the programs in this process, for benchmarks, tests and flame graphs.
///
/// # Errors
/// If nothing can be measured.
pub fn load(host: Host, required: &LoadOptions<'_>) -> Result<Kernel, LoadError> {
    let (service, facts) = Service::load(host.clone(), required)?;
    let maps = service.maps().map_err(LoadError::Descriptors)?.into_iter().collect();
    Ok(Kernel::with(host, required, Client::in_process(Box::new(service)), facts, maps)?)
}

fn maps_refused(error: &EbpfError, missing: &[String]) -> String {
    let remedy = match errno(error) {
        Some(libc::EMFILE | libc::ENFILE) => descriptors::REMEDY.to_owned(),
        Some(libc::ENOMEM) if let Some(limit) = MemoryLimit::of_this_process() => format!(
            "{limit}: raise its limit (Kubernetes: `resources.limits.memory`; Docker: `--memory`; systemd: `MemoryMax=`), \
             or lower `workloads.limit`"
        ),
        Some(libc::ENOMEM) => "free memory, or lower `workloads.limit`".to_owned(),
        _ if missing.is_empty() => "`undercurrent doctor` shows what this kernel allows".to_owned(),
        _ => format!("run as root, or grant {}", missing.join(", ")),
    };
    format!("the kernel refused to create the maps: {}; {remedy}", chain(error))
}

/// Returns the error number of the system call that failed.
fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(number) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(number);
        }
        cause = error.source();
    }
    None
}
