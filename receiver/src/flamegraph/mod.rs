//! `undercurrent flamegraph`: samples the CPUs for some seconds, and draws the stacks of network work.

mod names;
mod svg;
mod tree;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};

use self::names::Names;
pub use self::tree::Frame;
use crate::{
    config::Settings,
    kernel::{Kernel, KernelError, text::TextError},
    privileges::{ReadError, Task},
    requirements::{self, Refused, Requirements},
    signals::network_functions::{SampleSource, Stacks},
};

/// The time between two samples of a CPU: 499 Hz.
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / 499);
/// The time between two readings of the ring.
const READING: Duration = Duration::from_millis(50);

/// A flame graph cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FlamegraphError {
    /// Capabilities are missing.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The capabilities of this process cannot be read.
    #[error(transparent)]
    Privileges(#[from] ReadError),
    /// The programs cannot be loaded.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel refused the perf events.
    #[error("cannot sample the CPUs: {0}")]
    Hook(String),
    /// The sampling period cannot be set.
    #[error("cannot sample the CPUs: {0}")]
    Period(#[source] io::Error),
    /// The names of functions cannot be read.
    #[error(transparent)]
    Names(#[from] TextError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// No sample was network work.
    #[error("no sample was network work within {}: send traffic, or sample longer", humantime::format_duration(*.0))]
    Empty(Duration),
}

/// The result of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The number of stacks of network work.
    pub samples: u64,
    /// The stacks that did not fit into the ring.
    pub lost: u64,
    /// The file with the folded stacks.
    pub folded: PathBuf,
}

/// Samples the CPUs for `lasting` and writes a picture and the folded stacks. Other signals are disabled. Needs a tokio
/// runtime.
///
/// # Errors
/// If the kernel refuses to sample, no sample is network work, or a file cannot be written.
pub async fn record(mut settings: Settings, lasting: Duration, picture: &Path) -> Result<Recording, FlamegraphError> {
    let folded = picture.with_extension("folded");
    // Fails before the recording, not after it.
    write(picture, "")?;
    settings.signals.disable_all();
    settings.signals.network_functions.enabled = true;
    // The samples of a timer have equal times, so a picture needs no prices of cycles.
    settings.signals.network_functions.source = SampleSource::CpuClock;
    let (host, privileges) = requirements::host()?;
    privileges.require(&[Task::LoadTracing]).map_err(Refused::from)?;
    let kernel = Requirements::of(&settings, None).listen(host)?;
    require_hook(&kernel)?;
    let (root, lost) = sample(&kernel, &settings, lasting).await?;
    drop(kernel);
    if root.samples() == 0 {
        return Err(FlamegraphError::Empty(lasting));
    }
    write(&folded, &root.folded())?;
    write(picture, &svg::draw(&root, PERIOD))?;
    Ok(Recording { samples: root.samples(), lost, folded })
}

fn require_hook(kernel: &Kernel) -> Result<(), FlamegraphError> {
    let outcome = kernel.outcomes().iter().find(|outcome| outcome.by.is_none());
    let refusal = outcome.and_then(|outcome| outcome.refusals.first());
    refusal.map_or(Ok(()), |refusal| Err(FlamegraphError::Hook(format!("{}; {}", refusal.what, refusal.cure))))
}

/// Returns the stacks of network work, and the number of lost stacks.
async fn sample(kernel: &Kernel, settings: &Settings, lasting: Duration) -> Result<(Frame, u64), FlamegraphError> {
    let mut stacks = Stacks::open(kernel, &settings.signals.network_functions)?;
    kernel.cpu_sampling().set_clock(PERIOD).map_err(FlamegraphError::Period)?;
    let (names, mut root) = (Names::read()?, Frame::default());
    let end = Instant::now() + lasting;
    let mut ticks = tokio::time::interval(READING);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        ticks.tick().await;
        stacks.drain(|event, frames| root.add(event, frames.iter().map(|address| names.at(*address))));
    }
    Ok((root, stacks.lost()))
}

fn write(path: &Path, text: &str) -> Result<(), FlamegraphError> {
    fs::write(path, text).map_err(|source| FlamegraphError::Write { path: path.to_owned(), source })
}
