//! `undercurrent flamegraph`: samples the CPUs for some seconds, and draws the stacks of network work.

mod names;
mod svg;
mod tree;

use std::{
    fs::Permissions,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio::time::{Instant, MissedTickBehavior};

use self::names::Names;
pub use self::tree::Frame;
use crate::{
    causes::chain,
    config::Settings,
    kernel::{Kernel, KernelError, host::Host},
    parts::{self, Access, AccessError, Program, Reach},
    privileges::ReadError,
    requirements::{self, Refused, Requirements},
    signals::network_functions::{SampleSource, Stacks},
};

/// The time between two samples of a CPU: 499 Hz.
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / 499);
/// The permissions of the files: every user may read them.
const READABLE: u32 = 0o644;
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
    /// The parts cannot be started.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The CPUs cannot be sampled.
    #[error("{0}")]
    Sampling(String),
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

/// Samples the CPUs for `lasting` and writes a picture and the folded stacks. Other signals are disabled. The loader attaches
/// the programs, and a process without privileges reads the stacks; this process only creates the files. It must be
/// single-threaded.
///
/// # Errors
/// If the kernel refuses to sample, no sample is network work, or a file cannot be written.
pub fn record(mut settings: Settings, lasting: Duration, picture: &Path) -> Result<Recording, FlamegraphError> {
    let folded = picture.with_extension("folded");
    // Fails before the recording, not after it.
    let files = [NewFile::create(picture)?, NewFile::create(&folded)?];
    settings.signals.disable_all();
    settings.signals.network_functions.enabled = true;
    // The samples of a timer have equal times, so a picture needs no prices of cycles.
    settings.signals.network_functions.source = SampleSource::CpuClock;
    let (host, privileges) = requirements::host()?;
    privileges.require(&requirements::required_tasks(&settings)).map_err(Refused::from)?;
    let Drawing { samples, lost, stacks, svg } = draw(host, &settings, lasting)?;
    if samples == 0 {
        return Err(FlamegraphError::Empty(lasting));
    }
    let [new_picture, new_folded] = files;
    new_folded.publish(&stacks)?;
    new_picture.publish(&svg)?;
    Ok(Recording { samples, lost, folded })
}

/// The texts of both files.
#[derive(Serialize, Deserialize)]
struct Drawing {
    samples: u64,
    lost: u64,
    /// The folded stacks.
    stacks: String,
    svg: String,
}

/// Samples and draws in a process that has dropped its privileges.
fn draw(host: Host, settings: &Settings, lasting: Duration) -> Result<Drawing, FlamegraphError> {
    let prepare = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start tokio: {error}"))?;
        let requirements = Requirements::new(settings, None);
        let program = Program::own().map_err(|error| format!("cannot open the program of this process: {error}"))?;
        let mut access = Access::gain(&program, host, &requirements).map_err(|error| chain(&error))?;
        requirements.serve(&mut access.kernel).map_err(|error| chain(&error))?;
        let names = Names::read().map_err(|error| chain(&error))?;
        Ok((runtime, access, names))
    };
    let drawn = parts::in_worker(&Reach::default(), prepare, |(runtime, access, names)| {
        let sampled = runtime.block_on(sample(&access.kernel, settings, &names, lasting));
        let drawing = sampled.map(|(root, lost)| Drawing {
            samples: root.samples(),
            lost,
            stacks: root.folded(),
            svg: svg::draw(&root, PERIOD),
        });
        drawing.map_err(|error| chain(&error))
    });
    drawn?.map_err(FlamegraphError::Sampling)
}

/// A failure of the process that samples.
#[derive(Debug, thiserror::Error)]
enum SampleError {
    /// A map cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel refused the perf events.
    #[error("cannot sample the CPUs: {0}")]
    Hook(String),
    /// The sampling period cannot be set.
    #[error("cannot sample the CPUs: {0}")]
    Period(#[source] io::Error),
}

fn require_hook(kernel: &Kernel) -> Result<(), SampleError> {
    let outcome = kernel.outcomes().iter().find(|outcome| outcome.by.is_none());
    let refusal = outcome.and_then(|outcome| outcome.refusals.first());
    refusal.map_or(Ok(()), |refusal| Err(SampleError::Hook(format!("{}; {}", refusal.what, refusal.cure))))
}

/// Returns the stacks of network work, and the number of lost stacks.
async fn sample(
    kernel: &Kernel,
    settings: &Settings,
    names: &Names,
    lasting: Duration,
) -> Result<(Frame, u64), SampleError> {
    require_hook(kernel)?;
    let mut stacks = Stacks::open(kernel, &settings.signals.network_functions)?;
    kernel.cpu_sampling().set_clock(PERIOD).map_err(SampleError::Period)?;
    let mut root = Frame::default();
    let end = Instant::now() + lasting;
    let mut ticks = tokio::time::interval(READING);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        ticks.tick().await;
        stacks.drain(|event, frames| root.add(event, frames.iter().map(|address| names.at(*address))));
    }
    Ok((root, stacks.lost()))
}

/// A file that appears under its path once it is complete. It replaces a symbolic link, which another user may have created,
/// and does not follow it.
struct NewFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl NewFile {
    /// Creates a file without a name of its own in the folder of the path. Dropping the value removes it.
    fn create(path: &Path) -> Result<Self, FlamegraphError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().permissions(Permissions::from_mode(READABLE)).tempfile_in(folder);
        let path = path.to_owned();
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(FlamegraphError::Write { path, source }),
        }
    }

    fn publish(mut self, text: &str) -> Result<(), FlamegraphError> {
        let Self { path, file } = &mut self;
        let written =
            file.write_all(text.as_bytes()).map_err(|source| FlamegraphError::Write { path: path.clone(), source });
        written?;
        let error =
            |error: tempfile::PersistError| FlamegraphError::Write { path: self.path.clone(), source: error.error };
        self.file.persist(&self.path).map(drop).map_err(error)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_appear_once_complete_and_replace_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let (picture, target) = (folder.path().join("picture.svg"), folder.path().join("target"));
        fs::write(&target, "precious").expect("written");
        std::os::unix::fs::symlink(&target, &picture).expect("a link");
        drop(NewFile::create(&picture).expect("created"));
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2, "an abandoned file is removed");
        NewFile::create(&picture).and_then(|file| file.publish("drawn")).expect("published");
        assert_eq!([&picture, &target].map(|path| fs::read_to_string(path).expect("read")), ["drawn", "precious"]);
        assert_eq!(fs::metadata(&picture).expect("a file").permissions().mode() & 0o777, READABLE);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = NewFile::create(Path::new("/nonexistent/picture.svg")).map(drop).expect_err("refused").to_string();
        assert!(error.starts_with("cannot write /nonexistent/picture.svg: "), "{error}");
    }
}
