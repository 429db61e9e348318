//! The number of threads of the machine.

use std::io;

use procfs::{Current as _, LoadAverage};

/// Returns the number of threads of all processes and of the kernel, from the fourth number of `/proc/loadavg` (`loadavg_proc_show`, Linux 5.10
/// to 7.3).
///
/// # Errors
/// If the file cannot be read.
pub fn all_threads() -> io::Result<u64> {
    let load = LoadAverage::current().map_err(io::Error::other)?;
    Ok(load.max.into())
}
