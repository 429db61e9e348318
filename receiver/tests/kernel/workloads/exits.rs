//! Tests of slow packets whose reader and cgroup no longer exist when the sidecar reads the event.

use std::{thread, time::Duration};

use super::{
    super::{
        latency::served_by,
        support::{
            cgroups::{Group, remove},
            sidecar::{Sidecar, file},
            span::Span,
            surroundings::{patience, skip, stores_readers, wait_for},
            wire::{Version, Wire},
        },
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::CGROUP,
    worker::Worker,
};

/// The delay of the reads.
const LATE: Duration = Duration::from_millis(150);
const SETTINGS: &str = "signals: {network_functions: {enabled: false}, workload_cpu: {enabled: false}, \
                        transmit: {enabled: false}, slow_packets: {threshold: 50ms, uniform_share: none, budget: 10}}\n";

/// A process that read a packet late and ended, and its removed cgroup.
struct Ended {
    group: Group,
    process: u32,
}

impl Ended {
    /// Reads a packet late in a new cgroup, then ends the process and removes the cgroup.
    fn run(scene: &Scene, wire: &Wire) -> Self {
        let group = scene.group();
        let mut worker = Worker::start(&group.own(), &wire.right);
        let process = worker.id();
        let (listener, address) = worker.bind(Transport::Tcp, wire.server());
        let client = Client::connect(wire, Transport::Tcp, address);
        let connection = worker.accept(listener);
        client.say();
        thread::sleep(LATE);
        worker.answers(connection, 1, || client.hear());
        assert!(worker.dismiss().success());
        group.own().iter().for_each(|directory| remove(directory).unwrap());
        Self { group, process }
    }

    fn is_of(&self, span: &Span) -> bool {
        span.attribute("process.pid") == self.process.to_string()
    }
}

/// Returns the name in the kernel of this process's program, which is the program of the workers too.
fn name() -> String {
    let path = std::env::current_exe().unwrap();
    path.file_name().unwrap().to_str().unwrap().chars().take(15).collect()
}

fn ended_readers(scene: &Scene) {
    let file = file(SETTINGS);
    let sidecar = scene.sidecar(&["--config", file.path().to_str().unwrap()]);
    let wire = Wire::veth(Version::Ipv4);
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("ended readers: nothing serves socket_read");
    }
    // The second reader runs while the first one's packet is reported.
    let ended = [(); 2].map(|()| Ended::run(scene, &wire));
    for reader in &ended {
        let span =
            wait_for("the span of an ended process", patience(Duration::from_secs(5)), || span(&sidecar, reader));
        assert_eq!(span.attribute("process.executable.name"), name(), "{span:?}");
        match span.resource.get(CGROUP) {
            Some(cgroup) => assert_eq!(cgroup, reader.group.path.to_str().unwrap(), "{span:?}"),
            // On cgroup v1, these kernels do not provide the cgroup of a task.
            None => assert!(!stores_readers(), "{span:?}"),
        }
    }
}

fn span(sidecar: &Sidecar, reader: &Ended) -> Option<Span> {
    sidecar.spans().iter().find(|span| reader.is_of(span)).cloned()
}

#[test]
fn a_packet_keeps_the_name_and_workload_of_a_process_that_ended() {
    everywhere("ended readers", ended_readers);
}
