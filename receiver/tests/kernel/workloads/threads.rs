//! Compares the number of threads with the kernel's.

use std::fs;

use super::{
    super::support::{
        cgroups::Group,
        line::{Line, Point},
        truth::{exactly, record},
    },
    scene::{Scene, everywhere},
    watch::is,
};

const THREADS: &str = "undercurrent.threads";

/// Returns the number of threads of a cgroup; zero without a point.
fn threads(line: &Line, group: &Group) -> f64 {
    line.find(THREADS, &[]).filter(|point| is(point, &group.path)).map(Point::amount).sum()
}

/// Returns the number of threads of all processes and of the kernel.
fn all() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap();
    let tasks = text.split(' ').nth(3).unwrap();
    tasks.split_once('/').unwrap().1.parse().unwrap()
}

/// Checks a cgroup with processes while their number changes, and that all threads of the machine have an owner.
fn counted(scene: &Scene) {
    let group = scene.group();
    let sidecar = scene.sidecar(&["--level", "normal"]);
    let mut burners: Vec<_> = (0..3).map(|_| group.burn(&group.path).unwrap()).collect();
    let line = sidecar.line("three threads", |line| threads(line, &group) > 2.0);
    record(THREADS, threads(&line, &group), exactly(3.0));
    burners.truncate(1);
    let line = sidecar.line("one thread", |line| (0.5..1.5).contains(&threads(line, &group)));
    // Other processes start threads meanwhile.
    let (sum, all) = (line.total(THREADS, &[]), all());
    assert!((sum - all).abs() < 0.2 * all, "{sum} threads of workloads and the node, {all} of the machine");
}

#[test]
fn threads_are_those_of_the_cgroup() {
    everywhere("numbers of threads", counted);
}
