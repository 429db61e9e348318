//! Counters of containers, with the kernel's events in the place of the processor's counters.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use super::{
    super::{
        cpu::Offline,
        support::{
            cgroups::Group,
            counters::cpu_time,
            line::{Line, Point},
            meters::Meters,
            sidecar::{Sidecar, file},
            surroundings::{on_one_cpu, patience, skip, virtual_machine, wait_for},
            truth::{exactly, record},
        },
    },
    charges::burn,
    scene::{Scene, everywhere},
    watch::is,
};

const COUNTERS: [&str; 4] = [
    "undercurrent.cpu.cycles",
    "undercurrent.cpu.instructions",
    "undercurrent.cpu.cache.references",
    "undercurrent.cpu.cache.misses",
];
const ENERGY: &str = "undercurrent.energy";
/// Seconds of CPU time.
const USED: f64 = 1.0;
const SOFTWARE: &str = "signals: {processor: {events: software}}";
/// A process that joins cgroups, waits for a line, causes page faults and switches, and then waits for the end of its input.
const WORK: &str = r#"
for file; do echo $$ >"$file" || exit; done
echo; read line
i=0; while [ $i -lt 50 ]; do i=$((i + 1)); sh -c 'exec sleep 0.001'; done
i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done
echo; read line"#;

/// Starts processes one after another that join cgroups while they run, as a container's first process does, and then use CPU time.
const JOINING: &str = r#"
run='for file; do echo $$ >"$file" || exit; done; i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done'
i=0; while [ $i -lt 20 ]; do i=$((i + 1)); sh -c "$run" sh "$@"; done"#;

fn counted(line: &Line, metric: &str, group: &Group) -> f64 {
    line.find(metric, &[]).filter(|point| is(point, &group.path)).map(Point::amount).sum()
}

/// Waits until the sidecar knows the cgroup, and returns its snapshot.
fn known(sidecar: &Sidecar, group: &Group) -> Line {
    wait_for("the container to be known", patience(Duration::from_secs(10)), || {
        Some(sidecar.snapshot()).filter(|line| line.points.iter().any(|point| is(point, &group.path)))
    })
}

/// Returns the page faults and the context switches of a process with its ended children.
fn events(process: u32) -> [f64; 2] {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let number = |field: usize| fields[field - 3].parse::<f64>().unwrap();
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    let own: f64 = switches.map(|line| line.rsplit_once('\t').unwrap().1.trim().parse::<f64>().unwrap()).sum();
    // minflt, cminflt, majflt and cmajflt of proc_pid_stat(5).
    [(10..=13).map(number).sum(), own]
}

fn counters(scene: &Scene) {
    if !scene.attributes_tasks() {
        return;
    }
    let file = file(SOFTWARE);
    let meters = Meters::with(&[("0", "package-0", 5)]);
    let arguments = ["--config", file.path().to_str().unwrap(), "--sysfs-root", meters.root()];
    let sidecar = scene.sidecar(&arguments);
    let group = scene.group();
    let _consumer = meters.consume("0", 5, 50);
    let files = group.own().into_iter().map(|directory| directory.join("cgroup.procs"));
    let mut work = Command::new("sh");
    work.args(["-c", WORK, "sh"]).args(files).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut work = work.spawn().unwrap();
    let mut output = BufReader::new(work.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    // Events before the sidecar knows the cgroup count for the node.
    let before = known(&sidecar, &group);
    let ([earlier_faults, earlier_switches], earlier) = (events(work.id()), cpu_time(&group));
    work.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    output.read_line(&mut String::new()).unwrap();
    let burner = group.burn(&group.path).unwrap();
    wait_for("a process to use CPU time", patience(Duration::from_secs(30)), || {
        (cpu_time(&group) - earlier >= USED).then_some(())
    });
    let [faults, switches] = events(work.id());
    let (faults, switches) = (faults - earlier_faults, switches - earlier_switches);
    eprintln!("{faults} page faults, {switches} switches of the shell alone");
    drop(burner);
    drop(work.stdin.take());
    work.wait().unwrap();
    let used = cpu_time(&group) - earlier;
    let line = sidecar.snapshot();
    let values = COUNTERS.map(|metric| counted(&line, metric, &group) - counted(&before, metric, &group));
    eprintln!("{used:.3} s: {values:?}");
    record(COUNTERS[0], values[0], exactly(used * 1e9));
    record(COUNTERS[1], values[1], exactly(used * 1e9));
    // The burner has a few more of both than the shell and its children.
    record(COUNTERS[2], values[2], faults..=faults + 1000.0);
    record(COUNTERS[3], values[3], switches..=f64::MAX);
    let by_cycles = line.find(ENERGY, &[("undercurrent.energy.basis", "cycles")]).count();
    let idle = line.find(ENERGY, &[("undercurrent.energy.use", "idle")]).count();
    assert!(by_cycles > 1 && by_cycles + idle == line.find(ENERGY, &[]).count(), "{by_cycles} and {idle}");
}

#[test]
fn software_events_count_for_their_container() {
    everywhere("counters of a container", counters);
}

fn joined(scene: &Scene) {
    if !scene.attributes_tasks() {
        return;
    }
    let file = file(SOFTWARE);
    let sidecar = scene.sidecar(&["--config", file.path().to_str().unwrap()]);
    let group = scene.group();
    let (before, earlier) = (counted(&known(&sidecar, &group), COUNTERS[0], &group), cpu_time(&group));
    let files: Vec<_> = group.own().into_iter().map(|directory| directory.join("cgroup.procs")).collect();
    // The parent stays in the cgroups of this test, so the CPU switches between both.
    let run = || {
        on_one_cpu();
        Command::new("sh").args(["-c", JOINING, "sh"]).args(&files).status().unwrap()
    };
    let status = thread::scope(|scope| scope.spawn(run).join().unwrap());
    assert!(status.success(), "{status}");
    let used = cpu_time(&group) - earlier;
    let cycles = counted(&sidecar.snapshot(), COUNTERS[0], &group) - before;
    eprintln!("{used:.3} s: {cycles}");
    assert!(used > 0.1, "{used}");
    record(COUNTERS[0], cycles, exactly(used * 1e9));
}

#[test]
fn processes_that_join_while_they_run_count_for_their_container() {
    everywhere("counters of processes that join a container", joined);
}

#[test]
fn only_the_chosen_counters_are_read() {
    let chosen = "signals: {processor: {events: software, counters: [instructions]}, energy: {model: 10W..110W}}";
    let sidecar = Sidecar::configured(chosen);
    let line = wait_for("the chosen counters, and energy divided by cycles", patience(Duration::from_secs(10)), || {
        let counts = |line: &Line| COUNTERS[..2].iter().all(|metric| line.total(metric, &[]) > 0.0);
        let by_cycles = |line: &Line| line.find(ENERGY, &[("undercurrent.energy.basis", "cycles")]).count() > 0;
        Some(sidecar.snapshot()).filter(|line| counts(line) && by_cycles(line))
    });
    assert_eq!(COUNTERS[2..].iter().map(|metric| line.find(metric, &[]).count()).sum::<usize>(), 0, "cache counters");
}

/// Returns the growth of the cycles of a container that keeps the last CPU busy for a while, relative to its CPU time.
fn counted_share(sidecar: &Sidecar, group: &Group) -> f64 {
    let now = || (cpu_time(group), counted(&sidecar.snapshot(), COUNTERS[0], group));
    let before = now();
    let burner = burn(group);
    wait_for("a process to use CPU time", patience(Duration::from_secs(30)), || {
        (cpu_time(group) - before.0 >= USED).then_some(())
    });
    drop(burner);
    let after = now();
    (after.1 - before.1) / 1e9 / (after.0 - before.0)
}

fn returned(scene: &Scene) {
    if !scene.attributes_tasks() {
        return;
    }
    for functions in [true, false] {
        let text = format!("signals: {{processor: {{events: software}}, network_functions: {{enabled: {functions}}}}}");
        let file = file(&text);
        let sidecar = scene.sidecar(&["--config", file.path().to_str().unwrap()]);
        let group = scene.group();
        match Offline::take(1) {
            Ok(offline) => drop(offline),
            Err(error) => return skip(&format!("counters of an offline CPU: {error}")),
        }
        // The sidecar finds stopped events at a tick of the CPU.
        let counted = wait_for("the counters of the CPU", patience(Duration::from_secs(60)), || {
            Some(counted_share(&sidecar, &group)).filter(|share| *share > 0.5)
        });
        eprintln!("network_functions {functions}: {counted:.3} of the CPU time after the CPU returned");
        assert!(counted < 1.2, "{counted}");
    }
}

#[test]
fn a_cpu_that_returns_is_counted_again() {
    if virtual_machine().is_none() {
        return skip("counters of an offline CPU: tests take no CPU from a real machine");
    }
    everywhere("counters of a CPU that returned", returned);
}

fn without(scene: &Scene) {
    // No test machine has hardware counters: virtual machines have none.
    let sidecar = scene.sidecar(&[]);
    let line = sidecar.snapshot();
    for metric in COUNTERS {
        assert_eq!(line.find(metric, &[]).count(), 0, "{metric}");
    }
    assert_eq!(line.find("undercurrent.hook.status", &[("undercurrent.hook", "sched_switch")]).count(), 0);
}

#[test]
fn without_counters_there_are_no_points_and_no_hook_of_switches() {
    everywhere("a machine without counters", without);
}
