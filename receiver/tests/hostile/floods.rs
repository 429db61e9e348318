//! Floods of cgroups by one user.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::support::{
    cgroups::remove,
    containers::{OF_USER, datagrams, id, names, of_root, of_user, points},
    line::Line,
    player::Player,
    processes::family,
    runtime::{OF_USER as RUN, Runtime, USER, container, with_private_run},
    sidecar::{Sidecar, wall_clock},
    status::Status,
    surroundings::{alone, often, patience, wait_for},
    tree::Tree,
};

const DATAGRAMS: usize = 10;
/// The interval of snapshots while cgroups come and go, and how long they do.
const INTERVAL: Duration = Duration::from_secs(1);
const CHURN: Duration = Duration::from_secs(10);
/// The resident memory that a flood may add to all parts together, in kilobytes.
const GROWTH: u64 = 20 << 10;

/// Returns the number of cgroups or workloads that were refused for a reason.
fn refused(line: &Line, reason: &str) -> f64 {
    line.total("undercurrent.lost", &[("undercurrent.signal", "workloads"), ("undercurrent.reason", reason)])
}

/// Creates cgroups of the user, and waits until the sidecar has refused at least `least` of them.
fn flood(sidecar: &Sidecar, tree: &Tree, count: usize, reason: &str, least: usize) {
    (0..count).for_each(|n| drop(tree.make(&format!("{OF_USER}/app.slice/n{n}"))));
    wait_for(reason, patience(Duration::from_secs(60)), || {
        (refused(&sidecar.snapshot(), reason) >= least as f64).then_some(())
    });
}

/// Checks that a new container of root has its own series with its packets.
fn a_container_is_measured(sidecar: &Sidecar, tree: &Tree, number: u64) {
    let id = id(number);
    let mut player = Player::start("talk", &tree.make(&of_root(&id)), &[]);
    let instance = wait_for("a container", patience(Duration::from_secs(20)), || {
        points(&sidecar.snapshot(), &id).next().map(|point| point.resource["service.instance.id"].clone())
    });
    player.ask(&DATAGRAMS.to_string());
    wait_for("the packets of a container", patience(Duration::from_secs(10)), || {
        (datagrams(&sidecar.snapshot(), &instance) == DATAGRAMS as f64).then_some(())
    });
}

#[test]
fn nine_thousand_cgroups_of_a_user_move_no_packets_to_the_node() {
    const TEST: &str = "9 000 cgroups";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let sidecar = Sidecar::start(often());
    flood(&sidecar, &tree, 9000, "cgroup_quota", 6000);
    assert_eq!(refused(&sidecar.snapshot(), "table_full"), 0.0);
    a_container_is_measured(&sidecar, &tree, 1);
    sidecar.stop();
}

#[test]
fn eighteen_thousand_cgroups_of_a_user_end_no_series() {
    const TEST: &str = "18 000 cgroups";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let sidecar = Sidecar::start(often());
    let victim = id(1);
    let _player = Player::start("talk", &tree.make(&of_root(&victim)), &[]);
    wait_for("the victim", patience(Duration::from_secs(10)), || points(&sidecar.snapshot(), &victim).next().map(drop));
    flood(&sidecar, &tree, 18_000, "cgroup_quota", 15_000);
    // A scan that the flood interrupts is repeated after a minute at the latest.
    wait_for("a scan that was cut", patience(Duration::from_secs(90)), || {
        (refused(&sidecar.snapshot(), "scan_cut") > 0.0).then_some(())
    });
    for _ in 0..5 {
        assert!(points(&sidecar.snapshot(), &victim).next().is_some(), "the series ended");
    }
    a_container_is_measured(&sidecar, &tree, 2);
    sidecar.stop();
}

#[test]
fn three_hundred_forged_names_move_no_workload_to_the_overflow() {
    const TEST: &str = "300 forged names";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let sidecar = Sidecar::start(often());
    (0..300).for_each(|number| drop(tree.make(&of_user(&id(1000 + number)))));
    wait_for("refused slots", patience(Duration::from_secs(20)), || {
        (refused(&sidecar.snapshot(), "slot_quota") >= 260.0).then_some(())
    });
    (0..10).for_each(|number| a_container_is_measured(&sidecar, &tree, number));
    sidecar.stop();
}

/// A sample of the wall clock and of the total wait of processes for a CPU, in nanoseconds.
#[derive(Clone, Copy)]
struct Waited {
    time: u64,
    total: u64,
}

impl Waited {
    fn now(processes: &[u32]) -> Self {
        let of = |process: &u32| {
            let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
            text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        Self { time: wall_clock(), total: processes.iter().map(of).sum() }
    }

    /// Returns the time that was waited between two times.
    fn between(samples: &[Self], from: u64, to: u64) -> u64 {
        let before = samples.iter().rfind(|sample| sample.time <= from).unwrap();
        let after = samples.iter().find(|sample| sample.time >= to).unwrap();
        after.total - before.total
    }
}

/// Creates and removes cgroups for some time. Returns the number of both together.
fn churn(tree: &Tree, mut between: impl FnMut()) -> u32 {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < CHURN {
        // Names repeat, so that workloads resume.
        for directories in (0..50).map(|n| tree.directories(&format!("n{n}.service"))) {
            directories.iter().for_each(|directory| fs::create_dir(directory).unwrap());
            directories.iter().for_each(|directory| remove(directory).unwrap());
            count += 2;
        }
        between();
    }
    count
}

#[test]
fn cgroups_that_come_and_go_delay_no_snapshot() {
    const TEST: &str = "cgroups that come and go";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let sidecar = Sidecar::start("1s");
    let processes = family(sidecar.pid());
    let mut samples = vec![Waited::now(&processes)];
    let first = sidecar.snapshot();
    let count = churn(&tree, || samples.push(Waited::now(&processes)));
    let last = sidecar.snapshot();
    samples.push(Waited::now(&processes));
    let lines = sidecar.lines();
    let times: Vec<u64> = lines.iter().map(|line| line.time).filter(|time| *time >= first.time).collect();
    let nanoseconds = INTERVAL.as_nanos() as u64;
    let gaps = times.windows(2).map(|pair| (pair[1] - pair[0], Waited::between(&samples, pair[0], pair[1])));
    let gaps: Vec<(u64, u64)> = gaps.collect();
    let (rate, lost) = (f64::from(count) / CHURN.as_secs_f64(), refused(&last, "cgroup_event_lost"));
    eprintln!("{rate} changes a second, {lost} of {count} not reported; gaps and waits for a CPU in ns: {gaps:?}");
    for (gap, waited) in gaps {
        assert!(gap < 2 * nanoseconds + waited, "{gap} ns between two snapshots, {waited} ns of them without a CPU");
    }
    drop(lines);
    sidecar.stop();
}

/// Returns the resident memory of all parts in kilobytes.
fn memory(sidecar: &Sidecar) -> u64 {
    let resident = |process| Status::of_process(process).map_or(0, |status| status.number("VmRSS"));
    family(sidecar.pid()).into_iter().map(resident).sum()
}

#[test]
fn seven_thousand_forged_containers_with_large_answers_fill_no_memory() {
    const TEST: &str = "7 000 forged containers";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    with_private_run(|| {
        let runtime = Runtime::listen(&format!("{RUN}/docker.sock"), USER, |path| {
            Some(container(path, &"x".repeat(1000)).replace("\"Labels\":{", &format!("\"Labels\":{{{}", labels())))
        });
        let mut sidecar = Sidecar::start(often());
        sidecar.snapshot();
        let before = memory(&sidecar);
        (0..7000).for_each(|number| drop(tree.make(&of_user(&id(1000 + number)))));
        wait_for("a name", patience(Duration::from_secs(60)), || {
            let line = sidecar.snapshot();
            (0..7000).any(|number| !names(&line, &id(1000 + number)).is_empty()).then_some(())
        });
        let most = (0..25).map(|_| (sidecar.snapshot(), memory(&sidecar)).1).max().unwrap();
        eprintln!("{before} kB before, {most} kB at most, {} requests", runtime.requests().len());
        assert!(most <= before + GROWTH, "{before} kB before, {most} kB at most");
        assert!(sidecar.signal(Signal::TERM).0.success());
    });
}

/// Returns labels that the sidecar does not use. They stay below the limit of a user's answer, so that the sidecar parses them.
fn labels() -> String {
    (0..100).map(|n| format!("\"label-{n}\":\"{}\",", "y".repeat(1000))).collect()
}
