//! Empty programs in the sidecar's place: what it takes of others that its programs are entered, whatever they do.

use std::path::Path;

use anyhow::Context as _;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};
use undercurrent::{
    config::{File, Flags, Settings},
    kernel::{hooks, timestamping::Timestamping},
    requirements::{self, Requirements},
};

use crate::baseline::Baseline;

/// Attaches an empty program wherever a configuration has one, has packets stamped, and stays until it is asked to end.
pub fn stay(configuration: &Path) -> anyhow::Result<()> {
    let (settings, _) = Settings::resolve(Flags::default(), &|_| None, File::load(configuration)?);
    let (host, _) = requirements::host()?;
    let requirements = Requirements::of(&settings, host.ownership());
    // Only NICs that stamp packets have a program there.
    let hooks: Vec<_> = requirements.hooks().iter().copied().filter(|hook| hook.name != hooks::DRIVER.name).collect();
    let _programs = Baseline::attach(&host, &hooks, &settings.avoid)?;
    let _stamps = Timestamping::hold().context("cannot have packets stamped")?;
    eprintln!("measuring: nothing");
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { anyhow::Ok(signal(SignalKind::terminate())?.recv().await) })?;
    Ok(())
}
