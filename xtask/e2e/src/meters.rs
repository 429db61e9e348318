//! A tree with the layout of sysfs and growing power meters. The machines of tests have none.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tempfile::TempDir;

/// The zones of RAPL: folder, name, and power in watts.
const ZONES: [(&str, &str, u64); 3] =
    [("intel-rapl:0", "package-0", 50), ("intel-rapl:0:0", "dram", 5), ("intel-rapl:1", "psys", 80)];
/// The range of the counters in microjoules.
const RANGE: u64 = 262_143_328_850;
/// The time between two changes of the counters.
const STEP: Duration = Duration::from_millis(10);

/// The meters. They stop on drop.
pub struct Meters {
    root: TempDir,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meters {
    /// Creates the tree, and lets the counters grow.
    pub fn start() -> anyhow::Result<Self> {
        let root = tempfile::tempdir().context("cannot create a folder for the power meters")?;
        let mut zones = Vec::new();
        for (folder, name, watts) in ZONES {
            let zone = root.path().join("class/powercap").join(folder);
            fs::create_dir_all(&zone)?;
            fs::write(zone.join("name"), format!("{name}\n"))?;
            fs::write(zone.join("max_energy_range_uj"), format!("{RANGE}\n"))?;
            write(&zone, 0)?;
            zones.push((zone, watts));
        }
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = thread::spawn(move || grow(&zones, &ended));
        Ok(Self { root, end, thread: Some(thread) })
    }

    /// Returns the argument of `--sysfs-root`.
    pub fn root(&self) -> &Path {
        self.root.path()
    }
}

impl Drop for Meters {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic.
            let _ = thread.join();
        }
    }
}

fn grow(zones: &[(PathBuf, u64)], ended: &AtomicBool) {
    let start = Instant::now();
    while !ended.load(Ordering::Relaxed) {
        let microseconds = start.elapsed().as_micros() as u64;
        for (zone, watts) in zones {
            if let Err(error) = write(zone, microseconds * watts) {
                eprintln!("cannot write the meter {}: {error}", zone.display());
            }
        }
        thread::sleep(STEP);
    }
}

/// Replaces a counter, so that no reader sees a part of it.
fn write(zone: &Path, microjoules: u64) -> std::io::Result<()> {
    fs::write(zone.join("next"), format!("{}\n", microjoules % RANGE))?;
    fs::rename(zone.join("next"), zone.join("energy_uj"))
}
