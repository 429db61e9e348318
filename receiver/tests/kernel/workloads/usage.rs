//! Compares the CPU time of containers with the kernel's statistics of their cgroups.

use std::{path::Path, thread, time::Duration};

use super::{
    super::support::{
        cgroups::Group,
        counters::cpu_time,
        line::{Line, Point},
        sidecar::{BINARY, command, file},
        surroundings::{on_first_cpu, patience, skip, wait_for},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    charges::{Server, answer, burn},
    scene::{Scene, everywhere},
    watch::is,
};

const CPU_TIME: &str = "undercurrent.cpu.time";
const NETWORK_TIME: &str = "undercurrent.network.cpu.time";
const USE: &str = "undercurrent.cpu.use";
/// Files of cgroups with the controller `cpu`, whose scheduler keeps the time of a removed cgroup.
const KEPT: [&str; 2] = ["cpu.shares", "cpu.weight"];
/// Seconds of CPU time.
const USED: f64 = 1.5;
/// Rounds of requests.
const ROUNDS: usize = 5;
/// Seconds of softirq time that leave the interrupted container.
const MOVED: f64 = 0.002;

fn exported(line: &Line, metric: &str, of: &[(&str, &str)], group: &Group) -> f64 {
    line.find(metric, of).filter(|point| is(point, &group.path)).map(Point::amount).sum()
}

fn container(scene: &Scene) {
    let file = file("signals: {network_cpu: {enabled: false}, network_functions: {enabled: false}}");
    let sidecar = scene.sidecar(&["--config", file.path().to_str().unwrap()]);
    let group = scene.group();
    let burner = group.burn(&group.path).unwrap();
    wait_for("a process to use CPU time", patience(Duration::from_secs(20)), || {
        (cpu_time(&group) >= USED).then_some(())
    });
    drop(burner);
    // The kernel counts the last microseconds of a process after its parent has heard of its end.
    let (used, line) = wait_for("the statistics to be final", patience(Duration::from_secs(5)), || {
        let (before, line) = (cpu_time(&group), sidecar.snapshot());
        (cpu_time(&group) == before).then_some((before, line))
    });
    record(CPU_TIME, exported(&line, CPU_TIME, &[], &group), exactly(used));
    let divided = ["network", "compute"].map(|used| line.find(CPU_TIME, &[(USE, used)]).count());
    assert_eq!(divided, [0, 0], "without the time of network events there is no division");
}

#[test]
fn a_containers_time_is_its_cgroups() {
    everywhere("CPU time of a container", container);
}

/// A container receives packets in softirqs on another CPU, which another container keeps busy.
fn moved(scene: &Scene) {
    if !scene.attributes_tasks() {
        return;
    }
    let (receiving, burning) = (scene.group(), scene.group());
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let is_steered = wire.steer();
    let servers = [on_the_first_cpu(|| Server::start(&receiving, &wire))];
    let load = || answer(&servers, &mut || servers[0].ask());
    // The first read assigns the socket to the workload.
    on_the_first_cpu(load);
    let before = sidecar.snapshot();
    // Other programs may keep the burner from its CPU for a while.
    let expected = if is_steered && !excludes_interrupts() { MOVED } else { 0.0 };
    let after = wait_for("softirqs to interrupt the burner", patience(Duration::from_secs(60)), || {
        let burner = burn(&burning);
        on_the_first_cpu(|| (0..ROUNDS).for_each(|_| load()));
        drop(burner);
        let (used, line) = (cpu_time(&burning), sidecar.snapshot());
        let moved = used - exported(&line, CPU_TIME, &[(USE, "compute")], &burning);
        let softirqs = line.total(NETWORK_TIME, &[]);
        eprintln!("{moved:.4} s of {used:.4} s left the burner, of {softirqs:.4} s in softirqs");
        assert!((-1e-6..=softirqs).contains(&moved));
        (moved >= expected).then_some(line)
    });
    let grown = |metric, of: &[(&str, &str)]| {
        exported(&after, metric, of, &receiving) - exported(&before, metric, of, &receiving)
    };
    let (received, charged) = (grown(CPU_TIME, &[(USE, "network")]), grown(NETWORK_TIME, &[]));
    eprintln!("steered {is_steered}: {received:.4} s received, {charged:.4} s charged");
    assert!(received > 0.0 && (received - charged).abs() <= 0.02 * charged, "{received} s, not {charged} s");
    let points = after.find(CPU_TIME, &[]).count();
    let divided: usize = ["network", "compute"].iter().map(|used| after.find(CPU_TIME, &[(USE, used)]).count()).sum();
    assert_eq!(points, divided, "every point has a use");
}

/// Runs a part of the test away from the CPU of the burner.
fn on_the_first_cpu<T: Send>(part: impl FnOnce() -> T + Send) -> T {
    let pinned = || {
        on_first_cpu();
        part()
    };
    thread::scope(|scope| scope.spawn(pinned).join().unwrap())
}

/// Returns the diagnosis of this node.
fn doctor() -> serde_json::Value {
    let output = command(BINARY).args(["doctor", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns true if the kernel's statistics of cgroups leave out interrupts.
fn excludes_interrupts() -> bool {
    doctor()["cpu_time"].as_str().unwrap().contains("interrupts count for the node")
}

/// Returns true if programs can read the time of a removed cgroup.
fn keeps_removed() -> bool {
    !doctor()["absent_fields"].to_string().contains("task_group.se")
}

#[test]
fn softirqs_move_from_the_interrupted_container_to_the_receiver() {
    everywhere("CPU time of a receiver", moved);
}

/// Containers that live for a part of an interval.
fn short_lived(scene: &Scene) {
    const CONTAINERS: usize = 5;
    /// Seconds of CPU time of each.
    const EACH: f64 = 0.05;
    let sidecar = scene.sidecar_at("2s", &[]);
    sidecar.snapshot();
    let containers = (0..CONTAINERS).map(|_| {
        let group = scene.group();
        let burner = group.burn(&group.path).unwrap();
        wait_for("a process to use CPU time", patience(Duration::from_secs(20)), || {
            (cpu_time(&group) >= EACH).then_some(())
        });
        drop(burner);
        let keeps = group.own().iter().any(|cgroup| KEPT.iter().any(|file| cgroup.join(file).exists()));
        (group.path.clone(), cpu_time(&group), keeps)
    });
    let containers: Vec<_> = containers.collect();
    let line = sidecar.snapshot();
    let of = |path: &Path| line.find(CPU_TIME, &[]).filter(|point| is(point, path)).map(Point::amount).sum::<f64>();
    let (used, seen) =
        containers.iter().fold((0.0, 0.0), |(used, seen), (path, each, _)| (used + each, seen + of(path)));
    eprintln!("{seen:.4} s of {used:.4} s");
    if !keeps_removed() {
        return skip("CPU time of short containers: this kernel has no array of the scheduler's entities");
    }
    if containers.iter().all(|(_, _, keeps)| *keeps) {
        assert!((seen - used).abs() <= 0.02 * used, "{seen} s of {used} s");
    } else {
        eprintln!("this hierarchy is left out: its cgroups lack the controller `cpu`");
    }
}

#[test]
fn containers_that_end_within_an_interval_keep_their_time() {
    everywhere("CPU time of short containers", short_lived);
}
