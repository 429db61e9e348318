//! A tree with the layout of sysfs and the power meters of a machine.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// The range of the counters.
pub const RANGE: u64 = 262_143_328_850;

/// Power meters in a folder.
pub struct Meters(TempDir);

impl Meters {
    /// Creates a tree without meters.
    pub fn none() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("class/powercap")).unwrap();
        Self(root)
    }

    /// Creates a tree with zones of RAPL: numbers, names and energies in microjoules.
    pub fn with(zones: &[(&str, &str, u64)]) -> Self {
        let meters = Self::none();
        for (number, name, energy) in zones {
            let zone = meters.zone(number);
            fs::create_dir_all(&zone).unwrap();
            fs::write(zone.join("name"), format!("{name}\n")).unwrap();
            fs::write(zone.join("max_energy_range_uj"), format!("{RANGE}\n")).unwrap();
            write(&zone, *energy);
        }
        meters
    }

    fn zone(&self, number: &str) -> std::path::PathBuf {
        self.0.path().join(format!("class/powercap/intel-rapl:{number}"))
    }

    /// Records that a CPU shares its core with the next or the previous CPU.
    pub fn pair(&self, cpu: usize) {
        let folder = self.0.path().join(format!("devices/system/cpu/cpu{cpu}/topology"));
        fs::create_dir_all(&folder).unwrap();
        let first = cpu & !1;
        fs::write(folder.join("thread_siblings_list"), format!("{first}-{}\n", first + 1)).unwrap();
    }

    /// Sets the counter of a zone.
    pub fn set(&self, number: &str, energy: u64) {
        write(&self.zone(number), energy % RANGE);
    }

    /// Returns the argument for the sidecar.
    pub fn root(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Lets a zone grow at a power until the value is dropped.
    pub fn consume(&self, number: &str, from: u64, watts: u64) -> Consumer {
        let (zone, end) = (self.zone(number), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&end);
        let thread = thread::spawn(move || {
            let start = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                let grown = u64::try_from(start.elapsed().as_micros()).unwrap() * watts;
                write(&zone, (from + grown) % RANGE);
                // The counters of processors change about every millisecond.
                thread::sleep(Duration::from_millis(1));
            }
        });
        Consumer { end, thread: Some(thread) }
    }
}

/// A zone that grows.
pub struct Consumer {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Replaces the counter, so that no reader sees a part of it.
fn write(zone: &Path, energy: u64) {
    fs::write(zone.join("next"), format!("{energy}\n")).unwrap();
    fs::rename(zone.join("next"), zone.join("energy_uj")).unwrap();
}
