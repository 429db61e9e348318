//! Compares the time throttled by CPU quotas with the kernel's statistics.

use std::{fs, time::Duration};

use super::{
    super::support::{
        cgroups::Group,
        line::{Line, Point},
        surroundings::{patience, wait_for},
        truth::record,
    },
    scene::{Scene, everywhere},
    watch::is,
};

const THROTTLED_TIME: &str = "undercurrent.cpu.throttled.time";
/// The least throttled time in seconds.
const HELD: f64 = 0.3;

/// Returns the kernel's throttled time of a cgroup in seconds.
fn kernels(group: &Group) -> f64 {
    let figure = |text: String| {
        let found = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        found("throttled_usec").map(|time| time / 1e6).or_else(|| found("throttled_time").map(|time| time / 1e9))
    };
    let files = group.own().into_iter().map(|directory| directory.join("cpu.stat"));
    files.filter_map(|file| figure(fs::read_to_string(file).ok()?)).next().expect("the kernel says it")
}

/// Runs a process until its quota has throttled it this long.
fn hold(group: &Group) {
    let (from, _burner) = (kernels(group), group.burn(&group.path).unwrap());
    let held = || (kernels(group) >= from + HELD).then_some(());
    wait_for("a quota to hold a process", patience(Duration::from_secs(10)), held);
}

/// Returns the value of a cgroup in a line; `None` without a point.
fn throttled_time(line: &Line, group: &Group) -> Option<f64> {
    line.find(THROTTLED_TIME, &[]).find(|point| is(point, &group.path)).map(Point::amount)
}

/// Checks that throttled time counts from the discovery of the cgroup on, and that cgroups without a quota have no
/// point.
fn quotas(scene: &Scene) {
    let (before, without) = (scene.group(), scene.group());
    if let Err(error) = before.limit(&before.path) {
        eprintln!("left out: {error}");
        let sidecar = scene.sidecar(&[]);
        assert_eq!(sidecar.snapshot().find(THROTTLED_TIME, &[]).count(), 0);
        return;
    }
    hold(&before);
    let at_most = kernels(&before);
    let sidecar = scene.sidecar(&[]);
    let at_least = kernels(&before);
    let meanwhile = scene.group();
    meanwhile.limit(&meanwhile.path).unwrap();
    hold(&before);
    hold(&meanwhile);
    let lower = [&before, &meanwhile].map(kernels);
    let line = sidecar
        .line("the new cgroup's time", |line| throttled_time(line, &meanwhile).is_some_and(|held| held >= lower[1]));
    let upper = [&before, &meanwhile].map(kernels);
    eprintln!(
        "held: {:?} and {:?}, by the kernel {lower:?} to {upper:?}",
        throttled_time(&line, &before),
        throttled_time(&line, &meanwhile)
    );
    record(THROTTLED_TIME, throttled_time(&line, &before).unwrap(), lower[0] - at_least..=upper[0] - at_most);
    assert!(throttled_time(&line, &meanwhile).unwrap() <= upper[1] + 1e-6);
    assert_eq!(throttled_time(&line, &without), None);
}

#[test]
fn what_quotas_hold_is_what_the_kernel_says() {
    everywhere("CPU quotas", quotas);
}
