//! Listeners whose accept queue is full, against the kernel's counter.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, listen, socket_with};

use super::{
    super::support::{
        counters::overflowed,
        line::{Line, Point},
        namespace::Namespace,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, wait_for},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    scene::everywhere,
    sockets::Transport,
    watch::is,
    worker::Worker,
};

const OVERFLOWS: &str = "undercurrent.tcp.listen.overflows";
/// The smallest queue takes two connections.
const ATTEMPTS: usize = 6;
/// Attempts of which the kernel has counted so many suffice.
const DROPPED: u64 = 4;

/// Begins connections without waiting for them.
fn attempts(address: SocketAddr) -> Vec<OwnedFd> {
    let attempt = |_| {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        assert_eq!(connect(&socket, &address), Err(rustix::io::Errno::INPROGRESS));
        socket
    };
    (0..ATTEMPTS).map(attempt).collect()
}

/// Attempts until the kernel has counted enough of them; they are over when it returns.
fn overflow(client: &Namespace, server: &Namespace, address: SocketAddr) -> u64 {
    let from = overflowed(server);
    let sockets = client.run(|| attempts(address));
    let counted = || (overflowed(server) >= from + DROPPED).then_some(());
    wait_for("attempts to be dropped", patience(Duration::from_secs(10)), counted);
    drop(sockets);
    overflowed(server) - from
}

fn count(line: &Line, belongs: impl Fn(&Point) -> bool) -> f64 {
    line.find(OVERFLOWS, &[]).filter(|point| belongs(point)).map(Point::amount).sum()
}

#[test]
fn attempts_at_a_full_queue_are_the_listeners() {
    everywhere("full accept queues", |scene| {
        for version in Version::ALL {
            let group = scene.group();
            let sidecar = scene.sidecar(&[]);
            let wire = Wire::veth(version);
            wire.right.run(|| fs::write("/proc/sys/net/core/somaxconn", "1").unwrap());
            let server = Worker::start(&group.own(), &wire.right);
            let (_listener, address) = server.bind(Transport::Tcp, wire.server());
            let before = sidecar.snapshot();
            let dropped = overflow(&wire.left, &wire.right, address) as f64;
            let after = sidecar.snapshot();
            let grown = |belongs: &dyn Fn(&Point) -> bool| count(&after, belongs) - count(&before, belongs);
            let (own, all) = (grown(&|point| is(point, &group.path)), grown(&|_| true));
            eprintln!("{version:?}: {own} of the listener's workload, {all} of all; {dropped} by the kernel");
            if super::super::latency::served_by(&after, "tcp_listen").is_some() {
                assert_eq!((own, all), (dropped, dropped), "{version:?}");
            } else {
                // The kernel's counter covers the sidecar's network namespace alone.
                assert_eq!((own, all), (0.0, 0.0), "{version:?}");
            }
        }
    });
}

#[test]
fn attempts_in_the_sidecars_namespace_are_counted_without_hooks() {
    let Some(_alone) = alone("full accept queues of the node") else { return };
    let sidecar = Sidecar::start(often());
    let here = Namespace::current();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listen(&listener, 1).unwrap();
    let before = sidecar.snapshot();
    let dropped = overflow(&here, &here, listener.local_addr().unwrap()) as f64;
    let after = sidecar.snapshot();
    let counted = count(&after, |_| true) - count(&before, |_| true);
    record(OVERFLOWS, counted, exactly(dropped));
}
