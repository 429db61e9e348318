//! Empty programs in place of the sidecar's programs: measures the cost of entering a program at each hook.

use std::path::Path;

use anyhow::Context as _;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};
use undercurrent::{
    config::{File, Flags, Settings},
    kernel::hooks,
    loader::timestamping::Timestamping,
    requirements::{self, Requirements},
};

use crate::baseline::Baseline;

/// Attaches an empty program to every hook of a configuration, enables timestamps, and waits for a signal.
pub fn stay(configuration: &Path) -> anyhow::Result<()> {
    let (settings, _) = Settings::resolve(Flags::default(), &|_| None, File::load(configuration)?);
    let (host, _) = requirements::host()?;
    let requirements = Requirements::new(&settings, host.ownership());
    // The hook of NIC timestamps has a program only on machines with timestamping NICs.
    let hooks: Vec<_> = requirements.hooks().iter().copied().filter(|hook| hook.name != hooks::DRIVER.name).collect();
    let _programs = Baseline::attach(&host, &hooks, &settings.avoid)?;
    let _stamps = Timestamping::hold().context("cannot have packets stamped")?;
    eprintln!("0 signals: none");
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { anyhow::Ok(signal(SignalKind::terminate())?.recv().await) })?;
    Ok(())
}
