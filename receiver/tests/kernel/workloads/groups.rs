//! Tests of nested cgroups, of short-lived cgroups, and of more cgroups than the limit.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    super::{
        latency::DURATION,
        support::{
            cgroups::Group,
            line::{Line, Point, Value},
            sidecar::Sidecar,
            surroundings::{stores_readers, virtual_machine},
            wire::{Version, Wire},
        },
    },
    client::Client,
    passed::{assert_arrived, assert_read},
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::{Watch, is, is_nodes, is_overflow},
    worker::Worker,
};

const MESSAGES: usize = 30;

/// A metric that every known workload has.
const CPU_TIME: &str = "undercurrent.cpu.time";

/// Exchanges datagrams with a new process in these cgroups, which keeps running.
fn serve(cgroups: &[PathBuf], wire: &Wire, messages: usize) -> Worker {
    let worker = Worker::start(cgroups, &wire.right);
    let (socket, address) = worker.bind(Transport::Udp, wire.server());
    let client = Client::connect(wire, Transport::Udp, address);
    worker.answers(socket, messages, || client.ask(messages));
    worker
}

/// Waits until a workload is known.
fn appeared(sidecar: &Sidecar, path: &Path) -> Line {
    sidecar.line("a new workload", |line| line.find(CPU_TIME, &[]).any(|point| is(point, path)))
}

/// Checks that nested cgroups belong to the enclosing workload.
fn nested(scene: &Scene) {
    let group = scene.group();
    let [child, grandchild] = [group.path.join("child"), group.path.join("child/grandchild")];
    group.make(&child).unwrap();
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let _outer = serve(&group.directories(&child), &wire, MESSAGES);
    let seen = watch.end();
    assert_arrived(&seen, Transport::Udp, &[(&group, MESSAGES)]);

    group.make(&grandchild).unwrap();
    // The kernel reports cgroup changes in order, so the earlier cgroup is known once this one is.
    let later = scene.group();
    appeared(&sidecar, &later.path);
    let watch = Watch::begin(&sidecar, &wire);
    let _inner = serve(&group.directories(&grandchild), &wire, MESSAGES);
    let seen = watch.end();
    assert_arrived(&seen, Transport::Udp, &[(&group, MESSAGES)]);
    assert_read(&seen, Transport::Udp, &[(&group, MESSAGES)], 0);
    let inside = seen.after.points.iter().any(|point| is(point, &child) || is(point, &grandchild));
    assert!(!inside, "it is no workload of its own");
}

#[test]
fn what_is_inside_of_a_workload_is_its() {
    everywhere("nested cgroups", nested);
}

/// Returns the numbers of a workload's points with and without a value.
fn points(line: &Line, path: &Path) -> [usize; 2] {
    let of = |over| line.points.iter().filter(|point| is(point, path) && (point.value == Value::Over) == over).count();
    [of(false), of(true)]
}

/// Checks that a workload that begins and ends while the sidecar runs has all of its packets, and that its series
/// end.
fn life(scene: &Scene) {
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let group = scene.group();
    let path = group.path.clone();
    appeared(&sidecar, &path);

    let watch = Watch::begin(&sidecar, &wire);
    let mut worker = serve(&group.own(), &wire, MESSAGES);
    let seen = watch.end();
    assert_arrived(&seen, Transport::Udp, &[(&group, MESSAGES)]);
    let attributes = [("network.transport", "udp")];
    let total = |line: &Line| -> f64 {
        line.find(DURATION, &attributes).filter(|point| is(point, &path)).map(Point::amount).sum()
    };
    let whole = total(&seen.after);

    assert!(worker.dismiss().success());
    drop(group);
    let over = sidecar.line("the end of a workload", |line| points(line, &path)[1] > 0);
    assert_eq!(points(&over, &path)[0], 0, "it is over, and goes on");
    let lines = sidecar.lines().to_vec();
    let last = lines.iter().rev().find(|line| points(line, &path)[0] > 0).unwrap();
    assert_eq!(total(last), whole, "the last totals");
    let said: BTreeSet<_> = last.points.iter().filter(|point| is(point, &path)).map(|point| &point.metric).collect();
    let ended: BTreeSet<_> = over.points.iter().filter(|point| is(point, &path)).map(|point| &point.metric).collect();
    assert_eq!(said, ended, "every metric that it had is over");
    sidecar.line("no more of a workload", |line| line.time > over.time && points(line, &path) == [0, 0]);
}

#[test]
fn workloads_come_and_go_with_their_last_totals() {
    everywhere("a workload's life", life);
}

/// Checks that workloads beyond the limit are combined into one, and that no packet is missing.
fn limit(scene: &Scene) {
    const LIMIT: usize = 2;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limit.yaml");
    fs::write(&file, format!("workloads:\n  limit: {LIMIT}\n")).unwrap();
    let groups: [Group; 4] = std::array::from_fn(|_| scene.group());
    let sidecar = scene.sidecar(&["--config", file.to_str().unwrap()]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let workers: Vec<_> = groups.iter().zip(1..).map(|(group, n)| serve(&group.own(), &wire, n * MESSAGES)).collect();
    let seen = watch.end();

    let alone = |point: &&Point| !is_nodes(point) && !is_overflow(point);
    let own: BTreeSet<_> =
        seen.after.points.iter().filter(alone).map(|point| &point.resource["service.instance.id"]).collect();
    // Other workloads of the machine can take the places, and leave them again.
    assert!(own.len() <= LIMIT, "workloads with places of their own: {own:?}");
    if !stores_readers() {
        return;
    }
    let layer = seen.arrival();
    let of = groups.each_ref().map(|group| seen.of(group, layer, Transport::Udp));
    let rest = seen.of_those(layer, Some(Transport::Udp), is_overflow);
    eprintln!("{layer} udp: {of:?}, and {rest} beyond the limit");
    // Other workloads may have come first; the test may run in a workload beyond the limit.
    let expected = |n: usize| ((n + 1) * MESSAGES) as f64;
    let folded: f64 = (0..groups.len()).filter(|n| of[*n] == 0.0).map(expected).sum();
    assert!((0..groups.len()).all(|n| of[n] == 0.0 || of[n] == expected(n)), "{of:?}");
    assert!(folded >= expected(0) + expected(1), "all have places of their own");
    let exact = virtual_machine().is_some();
    assert!(rest == folded || rest > folded && !exact, "{rest} beyond the limit, not {folded}");
    drop(workers);
}

#[test]
fn workloads_beyond_the_limit_are_counted_together() {
    everywhere("more workloads than places", limit);
}
