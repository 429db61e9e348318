//! Energy of containers that share a CPU.

use std::{fs, thread, time::Duration};

use super::{
    super::support::{
        cgroups::Group,
        counters::cpu_time,
        line::{Line, Point},
        meters::Meters,
        sidecar::file,
        surroundings::{on_one_cpu, patience, virtual_machine, wait_for},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::is,
    worker::Worker,
};

const ENERGY: &str = "undercurrent.energy";
const NETWORK_TIME: &str = "undercurrent.network.cpu.time";
/// CPU time of the smaller container, in seconds.
const USED: f64 = 1.0;
const WATTS: u64 = 50;
/// Requests to the container with network load in one batch.
const BATCH: usize = 50;

/// Returns the sum of a cgroup's points.
fn sum(line: &Line, metric: &str, group: &Group, attributes: &[(&str, &str)]) -> f64 {
    line.find(metric, attributes).filter(|point| is(point, &group.path)).map(Point::amount).sum()
}

/// Gives a cgroup three times the CPU time of its siblings, where a controller divides CPU time by cgroup.
fn weigh(group: &Group) {
    for directory in group.own() {
        for (file, weight) in [("cpu.shares", "3072"), ("cpu.weight", "300")] {
            if directory.join(file).exists() {
                fs::write(directory.join(file), weight).unwrap();
            }
        }
    }
}

fn shared(scene: &Scene) {
    let (large, small, network) = (scene.group(), scene.group(), scene.group());
    weigh(&large);
    let meters = Meters::with(&[("0", "package-0", 5)]);
    let settings = file("signals: {energy: {idle: 0W}}");
    let arguments = ["--sysfs-root", meters.root(), "--config", settings.path().to_str().unwrap()];
    // One interval: the price of CPU time differs between intervals, because the power of the meter does not depend on the load.
    let sidecar = scene.sidecar_at("10m", &arguments);
    let wire = Wire::veth(Version::Ipv4);
    let worker = Worker::start(&network.own(), &wire.right);
    let (socket, address) = worker.bind(Transport::Udp, wire.server());
    let client = Client::connect(&wire, Transport::Udp, address);
    let _consumer = meters.consume("0", 5, WATTS);
    let times = [&large, &small].map(cpu_time);
    let burners = thread::scope(|scope| {
        let burn = || {
            on_one_cpu();
            // Three processes against one also have 3:1 where no controller divides CPU time.
            let own = || large.burn(&large.path).unwrap();
            [own(), own(), own(), small.burn(&small.path).unwrap()]
        };
        scope.spawn(burn).join().unwrap()
    });
    wait_for("the smaller container to use CPU time", patience(Duration::from_secs(30)), || {
        worker.answers(socket, BATCH, || client.ask(BATCH));
        (cpu_time(&small) - times[1] >= USED).then_some(())
    });
    drop(burners);
    let used = [cpu_time(&large) - times[0], cpu_time(&small) - times[1]];
    let lines = sidecar.stop();
    let [line] = lines.as_slice() else { panic!("{} lines instead of the last one", lines.len()) };

    let [large_energy, small_energy] = [&large, &small].map(|group| sum(line, ENERGY, group, &[]));
    eprintln!("{used:.3?} s have {large_energy:.3} J and {small_energy:.3} J");
    record(ENERGY, large_energy / small_energy, exactly(used[0] / used[1]));
    if virtual_machine().is_none() {
        assert!((2.6..3.4).contains(&(used[0] / used[1])), "the load was not 3:1: {used:?}");
    }
    // The network-heavy container pays for its packets at the price of the others' CPU time.
    let price = small_energy / used[1];
    let softirqs = sum(line, NETWORK_TIME, &network, &[]);
    let paid = sum(line, ENERGY, &network, &[("undercurrent.energy.use", "network")]);
    eprintln!("{softirqs:.3} s of softirqs have {paid:.3} J, at {price:.3} J/s");
    assert!(softirqs > 0.0 && paid > 0.0);
    let share = paid / (softirqs * price);
    assert!((share - 1.0).abs() <= 0.03, "{share}");
}

#[test]
fn containers_share_energy_by_their_cpu_time() {
    everywhere("energy of containers", shared);
}
