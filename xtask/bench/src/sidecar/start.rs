//! Time from the start of the process until all programs are attached, and until the first export.

use std::{
    env, fmt,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use xtask_common::process;

use crate::{ATTACHED, statistics::Median, verdict};

/// Export interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Upper limit for loading all programs in a guest on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum delay of the first export after the first interval.
const LIMIT: Duration = Duration::from_secs(1);

/// Times of several starts.
#[derive(Debug)]
pub struct Starts {
    /// Time until all programs are attached, in seconds.
    attached: Vec<f64>,
    /// Time until the first line, minus the interval, in seconds.
    exported: Vec<f64>,
}

/// Starts the sidecar a number of times, one after another.
pub fn measure(binary: &Path, starts: usize) -> anyhow::Result<Starts> {
    ensure!(starts > 0, "--starts must be at least 1");
    let mut times = Starts { attached: Vec::new(), exported: Vec::new() };
    for _ in 0..starts {
        let (attached, exported) = once(binary)?;
        times.attached.push(attached.as_secs_f64());
        // Negative only if the clock steps.
        times.exported.push(exported.as_secs_f64() - INTERVAL.as_secs_f64());
    }
    Ok(times)
}

fn once(binary: &Path) -> anyhow::Result<(Duration, Duration)> {
    let mut command = Command::new(binary);
    command.args(["run", "--output", "json", "--interval", &format!("{}s", INTERVAL.as_secs())]);
    // The sidecar must end even if this process dies.
    command.args(["--duration", &format!("{}s", (INTERVAL + PATIENCE).as_secs())]);
    command.env("OTEL_LOG_LEVEL", "info").env_remove("RUST_LOG").stdin(Stdio::null());
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|error| anyhow::anyhow!("cannot start {}: {error}", binary.display()))?;
    let (output, log) = (
        child.stdout.take().context("the sidecar has no standard output")?,
        child.stderr.take().context("the sidecar has no standard error")?,
    );
    let attached = thread::spawn(move || {
        let mut log = BufReader::new(log);
        let attached = line(&mut log, started, |line| line.contains(ATTACHED));
        // Read the rest, so that the pipe does not fill up. An error means that the sidecar has exited.
        let _ = io::copy(&mut log, &mut io::sink());
        attached
    });
    let exported = line(&mut BufReader::new(output), started, |line| line.starts_with('{'));
    process::end(child, PATIENCE)?;
    let attached = attached.join().map_err(|_| anyhow::anyhow!("the thread that read the log panicked"))?;
    Ok((
        attached.context("the sidecar did not log that its programs are attached")?,
        exported.context("the sidecar exported nothing")?,
    ))
}

/// Returns the time until the first matching line.
fn line(from: &mut impl BufRead, started: Instant, wanted: impl Fn(&str) -> bool) -> Option<Duration> {
    from.lines().map_while(Result::ok).find(|line| wanted(line)).map(|_| started.elapsed())
}

impl fmt::Display for Starts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |times: &[f64]| {
            let median = Median::new(times.to_vec()).map_or(f64::NAN, |median| median.value);
            (median, times.iter().copied().fold(0.0, f64::max))
        };
        let ((attached, attached_most), (exported, exported_most)) = (text(&self.attached), text(&self.exported));
        writeln!(
            formatter,
            "{} starts, median (longest) from the process's start:\n  everything attached after {attached:.3} s \
             ({attached_most:.3})\n  first export {exported:.3} s after the first interval of {} s ({exported_most:.3}){}",
            self.attached.len(),
            INTERVAL.as_secs(),
            // The limit does not apply to a guest without acceleration.
            if env::var_os("UNDERCURRENT_VM").is_some() {
                String::new()
            } else {
                format!("; at most {}: {}", LIMIT.as_secs(), verdict(exported_most, LIMIT.as_secs_f64()))
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_line_is_found() {
        let text = "starting\n2 signals: all\n2 signals: again\n";
        let started = Instant::now();
        assert!(line(&mut text.as_bytes(), started, |line| line.contains(ATTACHED)).is_some());
        assert!(line(&mut text.as_bytes(), started, |line| line.starts_with('{')).is_none());
    }

    #[test]
    fn medians_and_maxima_are_reported() {
        let starts = Starts { attached: vec![0.1, 0.9, 0.2], exported: vec![0.3, 1.5, 0.4] };
        let text = starts.to_string();
        assert!(text.contains("attached after 0.200 s (0.900)"), "{text}");
        assert!(text.contains("first export 0.400 s") && text.contains("(1.500)") && text.contains("MISSED"), "{text}");
    }
}
