//! Memory and CPU time of the running process, from the kernel's accounting.

use std::{
    fmt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use procfs::process::{MMapPath, Process};
use xtask_common::process;

use crate::{cpu::cpu_time, verdict};

/// Limit of the peak resident memory without BPF maps, in bytes.
const PEAK_LIMIT: f64 = 20e6;
/// Limit of the resident memory after the start without BPF maps, in bytes.
const STEADY_LIMIT: f64 = 10e6;
/// Limit of the CPU time at the default interval, as a share of one core.
const CPU_LIMIT: f64 = 0.003;
/// A time after the start and before the first export of the default interval.
const STARTED: Duration = Duration::from_secs(5);
/// Timeout for the last delivery.
const STOP: Duration = Duration::from_secs(10);

/// Memory and CPU time of a process.
#[derive(Debug)]
pub struct Footprint {
    /// Peak resident memory in bytes, without mapped BPF maps.
    peak: u64,
    /// Resident memory at the end in bytes, with mapped BPF maps.
    resident: u64,
    /// File-backed part of `resident`: mostly the binary, which is in the page cache anyway.
    of_files: u64,
    /// Resident part of the mapped BPF maps in bytes.
    maps: u64,
    /// CPU time of the start.
    start: Duration,
    /// CPU time after the start, and the elapsed time.
    later: (Duration, Duration),
}

/// Runs the sidecar for some time and returns its memory and CPU time.
pub fn measure(command: &mut Command, watched: Duration) -> anyhow::Result<Footprint> {
    let begun = Instant::now();
    let mut child = command
        .args(["--duration", &format!("{}s", (watched + STOP).as_secs())])
        .env_remove("OTEL_METRIC_EXPORT_INTERVAL")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let footprint = watch(&mut child, begun, watched);
    process::end(&mut child, STOP)?;
    footprint
}

fn watch(child: &mut Child, begun: Instant, watched: Duration) -> anyhow::Result<Footprint> {
    let sidecar = Process::new(i32::try_from(child.id())?)?;
    thread::sleep(STARTED.saturating_sub(begun.elapsed()));
    let (start, from) = (cpu_time(&sidecar)?, Instant::now());
    // Read before the first snapshot touches the maps, which would hide the memory of the start.
    let (begin, begin_maps) = (sidecar.status()?, maps(&sidecar)?);
    thread::sleep(watched.saturating_sub(begun.elapsed()));
    if let Some(status) = child.try_wait()? {
        bail!("the sidecar exited early: {status}");
    }
    let later = (cpu_time(&sidecar)?.saturating_sub(start), from.elapsed());
    let status = sidecar.status()?;
    // The kernel writes kB for 1024 bytes.
    let bytes = |kibibytes: Option<u64>| kibibytes.map(|size| size * 1024).context("the kernel does not report a size");
    let (resident, maps) = (bytes(status.vmrss)?, maps(&sidecar)?);
    Ok(Footprint {
        peak: bytes(begin.vmhwm)?.saturating_sub(begin_maps).max(resident.saturating_sub(maps)),
        resident,
        of_files: bytes(status.rssfile)?,
        maps,
        start,
        later,
    })
}

/// Returns the resident bytes of mapped BPF maps.
fn maps(process: &Process) -> anyhow::Result<u64> {
    let mappings = process.smaps()?;
    let maps = mappings.iter().filter(|mapping| match &mapping.pathname {
        MMapPath::Path(path) => path.to_string_lossy().contains("bpf-map"),
        MMapPath::Other(name) => name.contains("bpf-map"),
        _ => false,
    });
    Ok(maps.filter_map(|mapping| mapping.extension.map.get("Rss")).sum())
}

impl fmt::Display for Footprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (peak, steady) = (self.peak, self.resident.saturating_sub(self.maps));
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let share = self.later.0.as_secs_f64() / self.later.1.as_secs_f64();
        writeln!(
            formatter,
            "  peak   {:>5.1} MB, at most {:.0}: {}",
            megabytes(peak),
            PEAK_LIMIT / 1e6,
            verdict(peak as f64, PEAK_LIMIT)
        )?;
        writeln!(
            formatter,
            "  steady {:>5.1} MB, at most {:.0}: {} (of files, mostly the binary: {:.1} MB)",
            megabytes(steady),
            STEADY_LIMIT / 1e6,
            verdict(steady as f64, STEADY_LIMIT),
            megabytes(self.of_files - self.maps.min(self.of_files))
        )?;
        writeln!(formatter, "  maps   {:>5.2} MB mapped, apart from these", megabytes(self.maps))?;
        writeln!(
            formatter,
            "  CPU    {:.3}% of one core over {:.0} s, at most {}%: {} (and {:.3} s for the start)",
            share * 100.0,
            self.later.1.as_secs_f64(),
            CPU_LIMIT * 100.0,
            verdict(share, CPU_LIMIT),
            self.start.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_exclude_maps() {
        let footprint = Footprint {
            peak: 20_000_000,
            resident: 10_400_000,
            of_files: 6_000_000,
            maps: 500_000,
            start: Duration::from_millis(250),
            later: (Duration::from_millis(300), Duration::from_secs(100)),
        };
        assert_eq!(
            footprint.to_string(),
            "  peak    20.0 MB, at most 20: kept\n  steady   9.9 MB, at most 10: kept (of files, mostly the binary: 5.5 MB)\n  \
             maps    0.50 MB mapped, apart from these\n  \
             CPU    0.300% of one core over 100 s, at most 0.3%: kept (and 0.250 s for the start)\n"
        );
    }

    #[test]
    fn this_process_has_no_mapped_maps() {
        assert_eq!(maps(&Process::myself().unwrap()).unwrap(), 0);
    }
}
