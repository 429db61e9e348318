//! The sidecar while containers start and end.

use std::{
    fmt, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use procfs::process::Process;
use serde::Deserialize;
use xtask_common::process;

use super::lines::Lines;
use crate::verdict;

/// Duration of the measurement before containers start.
const QUIET: Duration = Duration::from_secs(30);
/// Maximum CPU time for starting and ending containers, as a share of one core.
const LIMIT: f64 = 0.01;
/// Upper limit of the number of snapshots until an ended container is delivered, expired and removed.
const SNAPSHOTS: u32 = 8;
/// Timeout of a wait, in addition to snapshots.
const PATIENCE: Duration = Duration::from_secs(20);
/// The switch of the kernel's statistics on BPF programs.
const COUNTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Output of the benchmark.
#[derive(Deserialize)]
struct Lives {
    /// Prefix of the containers' ids.
    prefix: String,
    lives: u32,
    /// Number of datagrams that the containers read.
    datagrams: u32,
}

/// Parameters of a run.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Duration in minutes.
    pub minutes: u32,
    /// Containers per minute.
    pub rate: u32,
    /// Interval of snapshots in seconds.
    pub interval: u32,
}

impl Plan {
    /// Returns the timeout of a wait.
    fn patience(self) -> Duration {
        PATIENCE + Duration::from_secs(self.interval.into()) * SNAPSHOTS
    }
}

/// Results of a run.
pub struct Churn {
    plan: Plan,
    lives: Lives,
    lasted: Duration,
    /// CPU time of the sidecar before containers start, as a share of one core.
    quiet: f64,
    /// Usage of the sidecar at the start, after each minute and at the end.
    usages: Vec<Usage>,
    /// Number of containers with slots at the end.
    slots: usize,
    overflow: bool,
    /// Losses by reason.
    lost: Vec<(String, f64)>,
    /// Number of reasons in the loss counters.
    reasons: usize,
    /// UDP packets that the sidecar counted: of these containers, and of all workloads.
    packets: (f64, f64),
    /// Datagrams that the kernel counted in this network namespace.
    counted: u64,
}

/// Cumulative usage of the sidecar.
#[derive(Clone, Copy)]
struct Usage {
    cpu: Duration,
    /// CPU time of the BPF programs.
    programs: Duration,
    /// Resident memory in bytes.
    resident: u64,
}

/// Starts and ends containers next to a sidecar, and measures the sidecar.
pub fn measure(binary: &Path, benchmark: &Path, plan: Plan) -> anyhow::Result<Churn> {
    let _counting = Counting::start()?;
    let mut command = Command::new(binary);
    let interval = format!("{}s", plan.interval);
    command
        .args(["run", "--output", "json", "--interval", &interval, "--sampling", "all"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut sidecar = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let lines = Arc::default();
    let reading = read(sidecar.stdout.take().context("the sidecar has no standard output")?, Arc::clone(&lines));
    let churn = watch(&mut sidecar, benchmark, &lines, plan);
    process::end(&mut sidecar, PATIENCE)?;
    reading.join().map_err(|_| anyhow!("the thread that read the sidecar's lines panicked"))??;
    churn
}

fn watch(sidecar: &mut Child, benchmark: &Path, lines: &Arc<Mutex<Lines>>, plan: Plan) -> anyhow::Result<Churn> {
    let Plan { minutes, rate, .. } = plan;
    let process = Process::new(i32::try_from(sidecar.id())?)?;
    next(lines, plan, |_| true)?;
    let (usage, begun) = (Usage::read(&process)?, Instant::now());
    thread::sleep(QUIET);
    let quiet = (Usage::read(&process)?.cpu - usage.cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
    let counted = udp()?;
    let (before, lost_before) = next(lines, plan, |lines| (lines.packets(), lines.lost.clone()))?;
    let (mut usages, begun) = (vec![Usage::read(&process)?], Instant::now());
    let mut command = Command::new(benchmark);
    command.args(["--rate", &rate.to_string(), "--lives", &(rate * minutes).to_string()]).stdout(Stdio::piped());
    let churning = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    for minute in 1..=minutes {
        thread::sleep((Duration::from_secs(60) * minute).saturating_sub(begun.elapsed()));
        usages.push(Usage::read(&process)?);
        if let Some(status) = sidecar.try_wait()? {
            bail!("the sidecar exited early: {status}");
        }
    }
    let output = churning.wait_with_output().context("cannot wait for the containers")?;
    let lives: Lives =
        serde_json::from_slice(&output.stdout).with_context(|| format!("the churn: {}", output.status))?;
    let (counted, lasted) = (udp()? - counted, begun.elapsed());
    // The next snapshot contains all packets; ended containers disappear after some snapshots.
    let all = next(lines, plan, Lines::packets)? - before;
    let ours = |lines: &Lines| lines.containers.iter().filter(|id| id.starts_with(&lives.prefix)).count();
    let freed = || Ok((ours(&*locked(lines)?) == 0).then_some(()));
    let slots = match process::wait_for("the release of all slots", plan.patience(), freed) {
        Ok(()) => 0,
        Err(_) => ours(&*locked(lines)?),
    };
    usages.push(Usage::read(&process)?);
    let lines = locked(lines)?;
    let since = |(reason, count): (&String, &f64)| (reason.clone(), count - lost_before.get(reason).unwrap_or(&0.0));
    let lost = lines.lost.iter().map(since).filter(|(_, count)| *count != 0.0).collect();
    Ok(Churn {
        plan,
        packets: (lines.packets_of(&lives.prefix), all),
        reasons: lines.lost.len(),
        overflow: lines.overflow,
        lives,
        lasted,
        quiet,
        usages,
        slots,
        lost,
        counted,
    })
}

/// Reads lines until the end of the stream.
fn read(output: ChildStdout, lines: Arc<Mutex<Lines>>) -> thread::JoinHandle<anyhow::Result<()>> {
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| locked(&lines)?.add(&line))
    })
}

fn locked(lines: &Mutex<Lines>) -> anyhow::Result<std::sync::MutexGuard<'_, Lines>> {
    lines.lock().map_err(|_| anyhow!("the thread that read the sidecar's lines panicked"))
}

/// Waits for a complete snapshot that starts after this call, and evaluates `look` on it.
fn next<T>(lines: &Mutex<Lines>, plan: Plan, look: impl Fn(&Lines) -> T) -> anyhow::Result<T> {
    let now = locked(lines)?.snapshots;
    process::wait_for("a snapshot", plan.patience(), || {
        let lines = locked(lines)?;
        // One snapshot may be partly written, another partly read.
        Ok((lines.snapshots > now + 1).then(|| look(&lines)))
    })
}

/// Returns the number of IPv4 datagrams that were read in this network namespace.
fn udp() -> anyhow::Result<u64> {
    let snmp = fs::read_to_string("/proc/net/snmp").context("cannot read /proc/net/snmp")?;
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, figures) = lines.next().zip(lines.next()).context("/proc/net/snmp has no line for UDP")?;
    let figure = names.split(' ').zip(figures.split(' ')).find(|(name, _)| *name == "InDatagrams");
    Ok(figure.context("/proc/net/snmp has no InDatagrams")?.1.parse()?)
}

impl Usage {
    fn read(process: &Process) -> anyhow::Result<Self> {
        let stat = process.stat()?;
        let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        Ok(Self {
            cpu: Duration::from_secs_f64(seconds),
            programs: programs(process.pid())?,
            resident: stat.rss * procfs::page_size(),
        })
    }
}

/// Returns the CPU time of the BPF programs of a process, from the kernel's statistics.
fn programs(pid: i32) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for file in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = fs::read_to_string(file?.path()).unwrap_or_default();
        let time = text.lines().find_map(|line| line.strip_prefix("run_time_ns:")?.trim().parse::<u64>().ok());
        nanoseconds += time.unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Enables the kernel's statistics on BPF programs, and restores the setting on drop.
struct Counting(String);

impl Counting {
    fn start() -> anyhow::Result<Self> {
        let before = fs::read_to_string(COUNTING).with_context(|| format!("cannot read {COUNTING}"))?;
        fs::write(COUNTING, "1").with_context(|| format!("cannot write {COUNTING}"))?;
        Ok(Self(before))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(COUNTING, &self.0) {
            eprintln!("cannot restore {COUNTING}: {error}");
        }
    }
}

impl Churn {
    /// Returns the CPU time between two usages as shares of one core: of the process, and of its BPF programs.
    fn share(&self, from: usize, to: usize, time: Duration) -> (f64, f64) {
        let [from, to] = [from, to].map(|n| self.usages[n]);
        let share = |spent: Duration| spent.as_secs_f64() / time.as_secs_f64();
        (share(to.cpu - from.cpu), share(to.programs - from.programs))
    }

    /// Returns the growth of the resident memory in bytes per minute: the least-squares slope after the first minute.
    fn growth(&self) -> Option<f64> {
        let points: Vec<(f64, f64)> = self.usages[1..self.usages.len() - 1]
            .iter()
            .zip(1_u32..)
            .map(|(usage, n)| (n.into(), usage.resident as f64))
            .collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        (spread > 0.0).then(|| points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread)
    }
}

impl fmt::Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.usages.len() - 1;
        let (cpu, programs) = self.share(0, last - 1, self.lasted);
        writeln!(
            f,
            "{} containers created and removed in {:.0} s, each with {} datagrams; the sidecar writes JSON every {} s",
            self.lives.lives,
            self.lasted.as_secs_f64(),
            self.lives.datagrams / self.lives.lives.max(1),
            self.plan.interval
        )?;
        writeln!(
            f,
            "  CPU      {:.2}% of one core, {:.2}% before: {:.2}% for starting and ending containers, at most {:.0}%: {}; BPF \
             programs take {:.3}% more, for all traffic on the machine",
            cpu * 100.0,
            self.quiet * 100.0,
            (cpu - self.quiet) * 100.0,
            LIMIT * 100.0,
            verdict(cpu - self.quiet, LIMIT),
            programs * 100.0
        )?;
        let minutes = (1..last).map(|n| format!("{:.2}%", self.share(n - 1, n, Duration::from_secs(60)).0 * 100.0));
        writeln!(f, "           by minute: {}", minutes.collect::<Vec<_>>().join(", "))?;
        let resident: Vec<String> =
            self.usages.iter().map(|usage| format!("{:.2}", usage.resident as f64 / 1e6)).collect();
        writeln!(f, "  memory   at the start, after each minute and at the end: {} MB", resident.join(", "))?;
        if let Some(growth) = self.growth() {
            writeln!(f, "           {:+.1} kB per minute after the first", growth / 1e3)?;
        }
        writeln!(
            f,
            "  slots    {} in use at the end, expected 0: {}{}",
            self.slots,
            verdict(self.slots as f64, 0.0),
            if self.overflow { "; at times there were more workloads than slots" } else { "" }
        )?;
        let total: f64 = self.lost.iter().map(|(_, count)| count).sum();
        let lost: Vec<String> = self.lost.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let lost = if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") };
        // Without a loss counter the verdict must fail.
        let total = if self.reasons == 0 { f64::INFINITY } else { total };
        writeln!(f, "  lost     {lost}, of {} counted reasons: {}", self.reasons, verdict(total, 0.0))?;
        let (ours, all) = self.packets;
        let off = (ours - f64::from(self.lives.datagrams)).abs();
        writeln!(
            f,
            "  counted  {ours} datagrams of these containers, {} by their own count: {}; {all} of all workloads, {} by the \
             kernel's count in this namespace",
            self.lives.datagrams,
            verdict(off, 0.0),
            self.counted
        )
    }
}
