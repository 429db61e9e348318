//! Compares a container's CPU time with the kernel's statistics of its cgroup.

use std::time::Duration;

use super::{
    super::support::{
        cgroups::Group,
        counters::cpu_time,
        line::{Line, Point},
        surroundings::{patience, wait_for},
        truth::{exactly, record},
    },
    scene::{Scene, everywhere},
    watch::is,
};

const CPU_TIME: &str = "undercurrent.cpu.time";
/// Seconds of CPU time.
const USED: f64 = 1.5;

fn exported(line: &Line, group: &Group) -> f64 {
    line.find(CPU_TIME, &[]).filter(|point| is(point, &group.path)).map(Point::amount).sum()
}

fn container(scene: &Scene) {
    let sidecar = scene.sidecar(&[]);
    let group = scene.group();
    let burner = group.burn(&group.path).unwrap();
    wait_for("a process to use CPU time", patience(Duration::from_secs(20)), || {
        (cpu_time(&group) >= USED).then_some(())
    });
    drop(burner);
    // The process has ended, so the statistics are final.
    let used = cpu_time(&group);
    let line = sidecar.snapshot();
    assert_eq!(cpu_time(&group), used);
    record(CPU_TIME, exported(&line, &group), exactly(used));
}

#[test]
fn a_containers_time_is_its_cgroups() {
    everywhere("CPU time of a container", container);
}
