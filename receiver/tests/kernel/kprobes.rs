//! The kernel runs one kprobe program at a time on each CPU, and skips others. Tests that skipped runs are
//! counted.

use std::{net::UdpSocket, thread, time::Duration};

use super::{
    latency::{left_out, seen, served_by},
    support::{
        sidecar::Sidecar,
        surroundings::{alone, often, skip, tells_left_out, virtual_machine},
        wire::{Version, Wire},
    },
};

const MESSAGES: usize = 2000;
const SIZE: usize = 200;

/// Sends datagrams while others are read. Datagrams that find the socket's queue full are lost.
fn flood(wire: &Wire) {
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    right.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    left.connect(right.local_addr().unwrap()).unwrap();
    thread::scope(|scope| {
        let sender = scope.spawn(|| (0..MESSAGES).for_each(|_| assert_eq!(left.send(&[0x55; SIZE]).unwrap(), SIZE)));
        while right.recv(&mut [0; SIZE]).is_ok() || !sender.is_finished() {}
        sender.join().unwrap();
    });
}

#[test]
fn what_the_kernel_leaves_out_is_counted() {
    let Some(_alone) = alone("kprobes that are left out") else { return };
    if !tells_left_out() {
        return skip("kprobes that are left out: before Linux 6.7 the kernel does not say how many");
    }
    let sidecar = Sidecar::start_with(often(), &["--avoid", "fentry"], &[]);
    let by = served_by(&sidecar.snapshot(), "ip");
    if virtual_machine().is_none() && by.is_none() {
        return skip("kprobes that are left out: this kernel is built without kprobes");
    }
    assert_eq!(by.as_deref(), Some("kprobe"));
    let wire = Wire::best(Version::Ipv4);
    for _ in 0..20 {
        let (before, counted) = (sidecar.snapshot(), wire.received());
        // Packets that interrupt the program of a read are skipped at the earlier layers.
        flood(&wire);
        let (counted, after) = (wire.settled() - counted, sidecar.snapshot());
        let seen = [&before, &after].map(|line| seen(line, "ip", None, Version::Ipv4));
        let left_out = left_out(&after, "ip") - left_out(&before, "ip");
        eprintln!("{} of {counted:?} seen, {left_out} left out", seen[1] - seen[0]);
        assert_eq!(seen[1] - seen[0] + left_out, counted.ip_of(Version::Ipv4) as f64);
        if left_out > 0.0 {
            return;
        }
    }
    panic!("no kprobe was left out, so that nothing is known of the count");
}
