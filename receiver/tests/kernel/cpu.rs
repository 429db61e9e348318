//! Compares the node's CPU time with other sources of the kernel.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use procfs::CurrentSI as _;
use serde_json::Value;
use undercurrent::workloads::{Hierarchy, Mounts};

use super::{
    busy::take_a_cpu,
    support::{
        sidecar::{BINARY, Sidecar, command},
        surroundings::{alone, often, patience, skip, virtual_machine, wait_for},
        truth::record,
    },
};

/// Returns the CPU time of the node in seconds from another source than the sidecar's: cgroup v1 or timer ticks.
fn used() -> f64 {
    accounted().unwrap_or_else(ticked)
}

/// Returns the CPU time of the root cgroup of version 1, if it is mounted.
fn accounted() -> Option<f64> {
    let mount = Mounts::read().unwrap().cpuacct?;
    let nanoseconds: f64 = fs::read_to_string(mount.point.join("cpuacct.usage")).unwrap().trim().parse().unwrap();
    Some(nanoseconds / 1e9)
}

/// Returns the CPU time from timer ticks. It is too low on processors that lose ticks, for example emulated ones.
fn ticked() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let columns: Vec<f64> = stat.lines().next().unwrap().split(' ').filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, irq, softirq.
    [0, 1, 2, 5, 6].iter().map(|column| columns[*column]).sum::<f64>() / procfs::ticks_per_second() as f64
}

/// Returns the steal time in seconds from the kernel's sum.
fn steal() -> f64 {
    let stat = procfs::KernelStats::current().unwrap();
    stat.total.steal.unwrap_or_default() as f64 / procfs::ticks_per_second() as f64
}

/// Keeps every CPU busy until the node has used this many seconds more.
fn burn(seconds: f64) {
    let (stop, until) = (AtomicBool::new(false), used() + seconds);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let burnt = || (used() >= until).then(|| stop.store(true, Ordering::Relaxed));
        wait_for("CPU time to be used", patience(Duration::from_secs(20)), burnt);
    });
}

#[test]
fn all_parts_are_the_nodes_whole() {
    let Some(_alone) = alone("CPU time") else { return };
    let sidecar = Sidecar::start(often());
    let (outer, outer_steal) = (used(), steal());
    let before = sidecar.snapshot();
    let (inner, inner_steal) = (used(), steal());
    burn(2.0);
    let (inner, inner_steal) = (used() - inner, steal() - inner_steal);
    let after = sidecar.snapshot();
    let (outer, outer_steal) = (used() - outer, steal() - outer_steal);
    drop(sidecar);
    let total = |metric| after.total(metric, &[]) - before.total(metric, &[]);
    let ours = total("undercurrent.cpu.time");
    let all = (after.time - before.time) as f64 / 1e9 * thread::available_parallelism().unwrap().get() as f64;
    let most = accounted().map_or(all, |_| outer);
    let stolen = total("undercurrent.cpu.steal.time");
    eprintln!(
        "CPU time: {ours:.3} s of {all:.3} s, {stolen:.3} s stolen, by the kernel between {inner:.3} s and {outer:.3} s"
    );
    record("undercurrent.cpu.steal.time", stolen, inner_steal..=outer_steal);
    record("undercurrent.cpu.time", ours, inner..=most);
    assert!(total("undercurrent.network.cpu.time") <= ours);
}

/// Uses this much CPU time in this thread, without a pause.
fn spin(time: Duration) {
    let from = thread_time();
    while thread_time() < from + time {
        std::hint::spin_loop();
    }
}

/// Returns the CPU time of this thread from the kernel's clock.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Much longer than the tick at which the kernel updates run times.
const SPIN: Duration = Duration::from_millis(500);

#[test]
fn threads_of_the_root_cgroup_have_exact_run_times() {
    let Some(_alone) = alone("run times") else { return };
    let mounts = Mounts::read().unwrap();
    let hierarchy = Hierarchy::choose(Mounts { cpu: None, ..mounts }).filter(|hierarchy| hierarchy.partial().is_none());
    let Some(hierarchy) = hierarchy else { return skip("run times: no cgroup v2 hierarchy is mounted") };
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let run_time = || {
        let threads = hierarchy.root_threads().unwrap();
        threads.into_iter().find_map(|(id, time)| (id == thread).then_some(time))
    };
    let Some(before) = run_time() else { return skip("run times: this test is not in the root cgroup") };
    spin(SPIN);
    let grown = (run_time().unwrap() - before).as_secs_f64();
    eprintln!("run time of a thread: {grown:.4} s of {SPIN:?}");
    assert!((0.95..=1.2).contains(&(grown / SPIN.as_secs_f64())), "{grown} s");
}

/// Much shorter than the time after which the kernel lets other tasks preempt a task with real-time priority.
const SHORT: Duration = Duration::from_millis(50);
/// The number of attempts. Other tasks preempt the test's task in some attempts, and a pause may end before the
/// task has left its CPU.
const ATTEMPTS: usize = 10;

/// A CPU that is offline until the value is dropped.
pub struct Offline(PathBuf);

impl Offline {
    pub fn take(cpu: usize) -> std::io::Result<Self> {
        let switch = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
        fs::write(&switch, "0")?;
        Ok(Self(switch))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "1");
    }
}

#[test]
fn the_total_goes_on_while_a_cpu_is_offline() {
    let Some(_alone) = alone("an offline CPU") else { return };
    if virtual_machine().is_none() {
        return skip("an offline CPU: tests take no CPU from a real machine");
    }
    let sidecar = Sidecar::start(often());
    let (before, used_before) = (sidecar.snapshot(), ticked());
    let offline = match Offline::take(1) {
        Ok(offline) => offline,
        Err(error) => return skip(&format!("an offline CPU: {error}")),
    };
    let meanwhile = sidecar.snapshot();
    wait_for("time to pass", patience(Duration::from_secs(5)), || {
        (sidecar.snapshot().time >= meanwhile.time + 3_000_000_000).then_some(())
    });
    let last = sidecar.snapshot();
    drop(offline);
    let (back, after, used_after) = (sidecar.snapshot(), sidecar.snapshot(), ticked());
    let totals =
        [&before, &meanwhile, &last, &back, &after].map(|snapshot| snapshot.total("undercurrent.cpu.time", &[]));
    let (ours, used) = (totals[4] - totals[0], used_after - used_before);
    let missing = (last.time - meanwhile.time) as f64 / 1e9;
    eprintln!("CPU time around an offline CPU: {totals:?}; {ours:.3} s, {used:.3} s by ticks, offline {missing:.3} s");
    assert!(totals.is_sorted(), "the total fell: {totals:?}");
    assert!(ours <= 1.3 * used + missing / 2.0, "{ours} s, not {used} s");
}

/// Returns `rq_cpu_time` of the last CPU: field 7 of its line in `/proc/schedstat`, versions 15 to 17.
fn departed() -> Option<Duration> {
    let text = fs::read_to_string("/proc/schedstat").ok()?;
    let line = text.lines().rfind(|line| line.starts_with("cpu"))?;
    line.split(' ').nth(7)?.parse().ok().map(Duration::from_nanos)
}

#[test]
fn schedstat_counts_a_task_only_when_it_leaves_its_cpu() {
    let Some(_alone) = alone("schedstat") else { return };
    let Some(version) =
        fs::read_to_string("/proc/schedstat").ok().and_then(|text| text.lines().next().map(str::to_owned))
    else {
        return skip("schedstat: this kernel has no /proc/schedstat (CONFIG_SCHEDSTATS)");
    };
    let attempt = |_| {
        let before = departed().unwrap();
        spin(SHORT);
        let during = departed().unwrap() - before;
        thread::sleep(Duration::from_millis(1));
        (during, departed().unwrap() - before)
    };
    let attempts = move || {
        take_a_cpu();
        (0..ATTEMPTS).map(attempt).collect::<Vec<_>>()
    };
    let attempts = thread::spawn(attempts).join().unwrap();
    let enabled = fs::read_to_string("/proc/sys/kernel/sched_schedstats").unwrap_or_default();
    eprintln!("schedstat {version}, sched_schedstats {}: while and after {SHORT:?}: {attempts:?}", enabled.trim());
    assert!(attempts.iter().any(|(during, after)| *during < SHORT / 4 && *after >= SHORT));
}

/// A cgroup of one test. Dropping the value removes it after its processes have ended.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        wait_for("the cgroup to empty", patience(Duration::from_secs(5)), || fs::remove_dir(&self.0).ok());
    }
}

/// Runs `doctor` below a cgroup where only a part of the cgroups is mounted. `mounting` is the shell command, with
/// the cgroup and a folder as arguments.
fn doctor(group: &Path, arguments: &[&str], mounting: &str) -> Value {
    let script = format!(r#"{mounting} && exec "$0" doctor --json"#);
    let folder = tempfile::tempdir().unwrap();
    let output: Output = command("sh")
        .args(["-c", r#"echo $$ >"$1/cgroup.procs" && shift && exec unshare --mount "$@""#, "sh"])
        .arg(group)
        .args(arguments)
        .args(["sh", "-c", &script, BINARY])
        .args([group, folder.path()])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_sidecar_that_sees_a_part_of_the_cgroups_says_so() {
    let Some(_alone) = alone("a part of the cgroups") else { return };
    let Some(v2) = Mounts::read().unwrap().v2 else {
        return skip("a part of the cgroups: no cgroup v2 hierarchy is mounted");
    };
    let name = format!("undercurrent-part-{}", std::process::id());
    let group = Group(v2.point.join(&name));
    fs::create_dir(&group.0).unwrap();
    let bind = r#"mount --bind "$1" "$2" && umount -R /sys/fs/cgroup"#;
    let own = "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup";
    for (arguments, mounting, view) in [
        (&[][..], bind, serde_json::json!({ "below": format!("/{name}") })),
        (&["--cgroup"], own, serde_json::json!("below_unknown")),
    ] {
        let report = doctor(&group.0, arguments, mounting);
        assert_eq!(report["host"]["hierarchy"]["tree"]["view"], view, "{report:#}");
        assert_eq!(report["host"]["cgroup_root"], Value::Null, "it is not the root");
        let signals = report["signals"].as_array().unwrap();
        let signal = signals.iter().find(|signal| signal["signal"] == "workload_cpu").unwrap();
        assert_eq!(signal["status"], "degraded", "{signal:#}");
        assert!(signal["reasons"][0].as_str().unwrap().contains("--cgroupns=host"), "{signal:#}");
        let hooks = report["hooks"].as_array().unwrap();
        assert!(hooks.iter().all(|hook| hook["by"] != "cgroup_skb"), "attached to less than the root: {hooks:#?}");
    }
}
