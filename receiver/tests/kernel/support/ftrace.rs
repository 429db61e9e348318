//! Observes runs of the receive softirq by ftrace, in cycles of the time stamp counter: without BPF, and by
//! another clock than the sidecar's.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{ring, sidecar::wall_clock};

const TRACEFS: &str = "/sys/kernel/tracing";
/// `NET_RX_SOFTIRQ`.
const FILTER: &str = "vec==3";
const CLOCK: &str = "x86-tsc";
/// The buffer of each CPU. It holds some seconds of the heaviest traffic, and the test reads it ten times per
/// second.
const BUFFER_KIB: &str = "8192";
const PAGE: usize = 4096;

/// A reading of two clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    cycles: u64,
    /// Nanoseconds of the wall clock.
    wall: u64,
}

impl Moment {
    /// Reads both clocks now, and returns the tightest of several readings.
    pub fn now() -> Self {
        let reading = |_| {
            let (before, wall, after) = (cycles(), wall_clock(), cycles());
            (after - before, Self { cycles: before.midpoint(after), wall })
        };
        (0..64).map(reading).min_by_key(|(apart, _)| *apart).unwrap().1
    }
}

#[cfg(target_arch = "x86_64")]
fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux permits it in user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> u64 {
    unreachable!("there is no such trace clock here, so no test came this far")
}

/// One run of the softirq on one CPU, in cycles.
#[derive(Clone, Copy, Debug)]
struct Span {
    entry: u64,
    exit: u64,
    /// From the first raise since the run before; `None` if there was none.
    waited: Option<u64>,
}

/// The observations between two times of the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The number of runs that began.
    pub begun: u64,
    /// The sum of the runs that ended, in seconds.
    pub seconds: f64,
    /// Seconds from the first raise to the run, of the runs that began.
    pub waited: f64,
}

/// A recording instance of ftrace. Dropping the value removes it.
pub struct Ftrace {
    folder: PathBuf,
    stop: Arc<AtomicBool>,
    readers: Vec<JoinHandle<Vec<Span>>>,
    start: Moment,
}

impl Ftrace {
    /// Returns the reason if ftrace is unavailable.
    pub fn missing() -> Option<String> {
        if !Path::new(TRACEFS).join("instances").exists() {
            // An error shows in the next check.
            let _ = process::Command::new("mount").args(["-t", "tracefs", "tracefs", TRACEFS]).status();
        }
        let clocks = fs::read_to_string(Path::new(TRACEFS).join("trace_clock")).unwrap_or_default();
        (!clocks.contains(CLOCK)).then(|| format!("ftrace has no clock {CLOCK} here: {clocks:?}"))
    }

    /// Starts to record. Call it before the sidecar attaches: the kernel runs probes in the order of attachment.
    /// So neither instrument's own time falls into the other's window.
    pub fn start() -> Self {
        let folder = Path::new(TRACEFS).join(format!("instances/undercurrent-{}", process::id()));
        fs::create_dir(&folder).unwrap();
        let mut ftrace = Self { folder, stop: Arc::default(), readers: Vec::new(), start: Moment::now() };
        ftrace.write("buffer_size_kb", BUFFER_KIB);
        ftrace.write("trace_clock", CLOCK);
        let ids = ["softirq_raise", "softirq_entry", "softirq_exit"].map(|event| {
            ftrace.write(&format!("events/irq/{event}/filter"), FILTER);
            let id = fs::read_to_string(ftrace.folder.join(format!("events/irq/{event}/id"))).unwrap();
            id.trim().parse::<u16>().unwrap()
        });
        for cpu in fs::read_dir(ftrace.folder.join("per_cpu")).unwrap() {
            let pipe = cpu.unwrap().path().join("trace_pipe_raw");
            let pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(pipe).unwrap();
            let stop = Arc::clone(&ftrace.stop);
            ftrace.readers.push(thread::spawn(move || read(pipe, &stop, ids)));
        }
        for event in ["softirq_exit", "softirq_entry", "softirq_raise"] {
            ftrace.write(&format!("events/irq/{event}/enable"), "1");
        }
        ftrace
    }

    fn write(&self, file: &str, value: &str) {
        fs::write(self.folder.join(file), value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// Ends the recording, and returns the observations after `from` and until `to`.
    pub fn stop(mut self, from: u64, to: u64) -> Seen {
        let end = Moment::now();
        self.write("tracing_on", "0");
        self.stop.store(true, Ordering::Relaxed);
        let spans: Vec<Span> = self.readers.drain(..).flat_map(|reader| reader.join().unwrap()).collect();
        self.assert_nothing_lost();
        let (start, nanoseconds) = (self.start, (end.wall - self.start.wall) as f64);
        let cycles = nanoseconds / (end.cycles - start.cycles) as f64;
        let inside = |at: u64| {
            let wall = (at as f64 - start.cycles as f64).mul_add(cycles, start.wall as f64);
            from as f64 <= wall && wall < to as f64
        };
        let begun = || spans.iter().filter(|span| inside(span.entry));
        let waited: u64 = begun().filter_map(|span| span.waited).sum();
        let spent: u64 = spans.iter().filter(|span| inside(span.exit)).map(|span| span.exit - span.entry).sum();
        let seconds = |of: u64| of as f64 * cycles / 1e9;
        Seen { begun: begun().count() as u64, seconds: seconds(spent), waited: seconds(waited) }
    }

    fn assert_nothing_lost(&self) {
        for cpu in fs::read_dir(self.folder.join("per_cpu")).unwrap() {
            let statistics = fs::read_to_string(cpu.unwrap().path().join("stats")).unwrap();
            for line in
                statistics.lines().filter(|line| line.starts_with("overrun:") || line.starts_with("dropped events:"))
            {
                assert!(line.ends_with(": 0"), "ftrace lost events: {statistics}");
            }
        }
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Reads one CPU's runs until `stop` is set and no data is left.
fn read(mut pipe: File, stop: &AtomicBool, [raise, entry, exit]: [u16; 3]) -> Vec<Span> {
    let (mut spans, mut raised, mut running, mut page) = (Vec::new(), None, None, [0; PAGE]);
    loop {
        // Loaded before the read, so that all earlier data is read below.
        let last = stop.load(Ordering::Relaxed);
        loop {
            match pipe.read(&mut page) {
                Ok(0) => break,
                Ok(_) => ring::events(&page, |time, event| {
                    let id = u16::from_ne_bytes(event[..2].try_into().unwrap());
                    if id == raise {
                        raised.get_or_insert(time);
                    } else if id == entry {
                        running = Some((time, raised.take().map(|raised| time - raised)));
                    } else if id == exit
                        && let Some((entry, waited)) = running.take()
                    {
                        spans.push(Span { entry, exit: time, waited });
                    }
                }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("trace_pipe_raw: {error}"),
            }
        }
        if last {
            return spans;
        }
        thread::sleep(Duration::from_millis(100));
    }
}
