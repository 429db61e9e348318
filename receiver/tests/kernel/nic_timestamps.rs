//! Tests of packets with a NIC timestamp. No NIC of this machine provides timestamps, so the test injects packets
//! with one into the sidecar's programs.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::Ordering,
    time::Duration,
};

use rustix::net::netdevice::name_to_index;
use undercurrent::{
    cgroup::Ownership,
    kernel::{
        Kernel, LoadOptions,
        counters::Events,
        criteria::FilterKeys,
        hooks,
        maps::ByCpu,
        memory::Sizing,
        nics::{Interface, NicInventory},
        plan::Status,
    },
    loader::load,
    requirements,
    signals::{Settings, planned_maps, receive_driver::DRIVER},
    telemetry::Scale,
    workloads::OWNERS_MAP,
};
use undercurrent_ebpf::abi::{
    driver::{Conversion, DRIVER_LOSSES, DriverCells, DriverLoss},
    filter::{Criterion, FilterKey},
    interface,
    workload::{NAMESPACE, Slot, entry, indices},
};

use super::support::{
    injection::Injection,
    namespace::Namespace,
    sidecar::wall_clock,
    surroundings::{alone, on_one_cpu, patience, skip, wait_for},
    wire::{Version, Wire},
};

/// The index of the NIC in the test.
const NIC: usize = 2;
/// The index of no NIC.
const OTHER: usize = 3;
/// The age of packets since the NIC received them, in nanoseconds.
const AGE: u64 = 3_000_000;
/// A reading of a NIC's clock that has run for a while. The wall clock is ahead of it by this much.
const READING: u64 = 777_000_000_000;
/// A relative rate of 1/1000 in units of 2^-32: larger than the error of any real NIC, so its effect is visible.
const RATE: i64 = 4_294_967;

/// The measurements of NICs only.
struct Measured {
    kernel: Kernel,
    cells: ByCpu<DriverCells>,
}

impl Measured {
    fn start(filter_keys: FilterKeys) -> Self {
        let (host, _) = requirements::host().unwrap();
        let sizing = Sizing { filter_keys, workloads: Some(8), ..Sizing::new(host.cpus, Scale::DEFAULT) };
        let requirements = LoadOptions {
            sizing,
            constants: sizing.constants(),
            maps: planned_maps(&Settings::default()).map(|(map, _)| map.size(&sizing, true)).collect(),
            hooks: &[&hooks::DRIVER],
            functions: &[],
            ownership: Some(Ownership::Unified),
            avoid: &[],
            classified: &[],
            counters: None,
            interrupts: Events::Hardware,
            counter_hooks: &[],
            siblings: Vec::new(),
        };
        let kernel = load(host, &requirements).unwrap();
        let cells = kernel.by_cpu(&DRIVER).unwrap();
        Self { kernel, cells }
    }

    /// Returns the number of measured packets of a NIC, the sum of their durations, and the lost packets by
    /// reason.
    fn of(&self, place: usize) -> (u64, u64, [u64; DRIVER_LOSSES]) {
        let mut total = (0, 0, [0; DRIVER_LOSSES]);
        self.cells.for_each(|_, cells| {
            let nic = &cells.nics[place];
            total.0 += nic.duration.buckets.iter().sum::<u64>();
            total.1 += nic.duration.sum;
            total.2.iter_mut().zip(nic.lost).for_each(|(total, lost)| *total += lost);
        });
        total
    }

    /// Returns the duration of the one counted packet, or the reason of its loss.
    fn of_packet(&self, receive: impl FnOnce()) -> Result<u64, DriverLoss> {
        let before = self.of(NIC);
        receive();
        // `ksoftirqd` may process the packet later.
        let (count, sum, lost) = wait_for("a packet to be counted", patience(Duration::from_secs(2)), || {
            let after = self.of(NIC);
            (after != before).then_some(after)
        });
        let reasons = DriverLoss::ALL.into_iter().filter(|loss| lost[*loss as usize] != before.2[*loss as usize]);
        let reasons: Vec<_> = reasons.collect();
        match (count - before.0, reasons.as_slice()) {
            (1, []) => Ok(sum - before.1),
            (0, [reason]) => Err(*reason),
            counted => panic!("one packet counts once: {counted:?}"),
        }
    }
}

/// Returns a time of the NIC's clock. At [`READING`] the wall clock was `wall`, and it gains on the NIC's clock by
/// [`RATE`].
fn nic_clock(wall: u64, at: u64) -> u64 {
    let elapsed = i128::from(at) - i128::from(wall);
    u64::try_from(i128::from(READING) + (elapsed << 32) / ((1_i128 << 32) + i128::from(RATE))).unwrap()
}

fn conversion(wall: u64) -> Conversion {
    Conversion { reading: READING, offset: wall - READING, rate: RATE.cast_unsigned() }
}

/// Registers a wire's right end as the NIC with this index.
fn nic(measured: &mut Measured, wire: &Wire, index: u32) {
    let interface = Interface { name: "wire".to_owned(), index, clock: Some(0) };
    measured.kernel.note_nics(NicInventory { usable: vec![interface], problems: Vec::new() }).unwrap();
    let outcome = &measured.kernel.outcomes()[0];
    assert_eq!(outcome.status, Status::Healthy, "{outcome:?}");
    let namespace = u32::try_from(wire.right.inode()).unwrap();
    let indices = measured.kernel.nic_indices();
    indices.insert(interface::Interface { namespace, index }, NIC).unwrap();
}

/// Attributes packets that a namespace receives to the first workload.
fn own(measured: &Measured, namespace: u32) {
    let (owners, owner) = (measured.kernel.words(&OWNERS_MAP).unwrap(), NAMESPACE | u64::from(namespace));
    let [place, _] = indices(owner);
    owners.slice(0..owners.count())[place as usize].store(entry(owner, Slot::FIRST), Ordering::Relaxed);
}

/// Returns the interface index of a wire's end in its namespace.
fn index(namespace: &Namespace) -> u32 {
    let socket = namespace.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    name_to_index(&socket, "wire").unwrap()
}

#[test]
fn a_nic_timestamp_is_compared_with_the_kernels() {
    let Some(_alone) = alone("stamps of NICs") else { return };
    let (wire, injection) = (Wire::veth(Version::Ipv4), Injection::load());
    let (left, right) = (index(&wire.left), index(&wire.right));
    let mut measured = Measured::start(FilterKeys::default());
    assert!(!measured.kernel.serves(&hooks::DRIVER), "a program is attached though no NIC stamps anything");
    nic(&mut measured, &wire, right);
    let clocks = measured.kernel.nic_clocks().unwrap();
    let receive = |stamp| injection.receive(&wire.right, right, stamp).unwrap();
    if let Err(error) = injection.receive(&wire.right, right, 1) {
        return skip(&format!("stamps of NICs: this kernel gives no packet a stamp: {error}"));
    }
    let before = wall_clock();
    assert_eq!(measured.of_packet(|| receive(READING)), Err(DriverLoss::NoClock), "no clock is known yet");

    // The clock was read a second ago, after it had run for minutes.
    let read = before - 1_000_000_000;
    clocks.set(NIC, &conversion(read));
    for attempt in 0..10_u64 {
        let age = AGE << (attempt % 5);
        let start = wall_clock();
        let duration = measured.of_packet(|| receive(nic_clock(read, start - age)));
        let took = wall_clock() - start;
        let duration = duration.unwrap_or_else(|loss| panic!("{loss:?}"));
        // The conversion rounds by two nanoseconds at most.
        assert!((age - 2..=age + took + 2).contains(&duration), "{duration} ns of {age} ns, and {took} ns on the way");
    }
    let now = || nic_clock(read, wall_clock());
    assert_eq!(measured.of_packet(|| receive(now() + 2_000_000_000)), Err(DriverLoss::Negative));
    assert_eq!(measured.of_packet(|| receive(READING - (1 << 33) - 1)), Err(DriverLoss::NoClock), "too far away");
    let unheeded = || {
        // Packets without a timestamp, and packets of other interfaces, are ignored.
        receive(0);
        injection.receive(&wire.left, left, now()).unwrap();
        receive(now());
    };
    measured.of_packet(unheeded).unwrap();
    clocks.unset(NIC);
    assert_eq!(measured.of_packet(|| receive(now())), Err(DriverLoss::NoClock), "the wall clock was set");
    let all = measured.of(NIC);
    assert_eq!(all.0, 11);
    assert_eq!(measured.of(OTHER), (0, 0, [0; DRIVER_LOSSES]));

    measured.kernel.note_nics(NicInventory::default()).unwrap();
    assert!(!measured.kernel.serves(&hooks::DRIVER), "a program stays though no NIC stamps anything any more");
    receive(now());
    assert_eq!(measured.of(NIC), all);
}

#[test]
fn a_filter_chooses_among_packets_that_nics_timestamp() {
    let Some(_alone) = alone("stamps of NICs") else { return };
    let (wire, injection) = (Wire::veth(Version::Ipv4), Injection::load());
    let (right, namespace) = (index(&wire.right), u32::try_from(wire.right.inode()).unwrap());
    if let Err(error) = injection.receive(&wire.right, right, 1) {
        return skip(&format!("stamps of NICs: this kernel gives no packet a stamp: {error}"));
    }
    let workload = |slot: u16| FilterKey::of(Criterion::Workload, slot.into());
    // For each case: how many of ten packets and the last one are selected, how many the filter could not decide,
    // and how many are lost.
    let cases = [
        (Criterion::Interface, FilterKey::interface(namespace, right), [11, 0, 0]),
        (Criterion::Interface, FilterKey::interface(namespace, right + 1), [1, 0, 0]),
        (Criterion::Namespace, FilterKey::of(Criterion::Namespace, namespace), [11, 0, 0]),
        (Criterion::Namespace, FilterKey::of(Criterion::Namespace, namespace + 1), [1, 0, 0]),
        (Criterion::Workload, workload(Slot::FIRST.0), [11, 0, 0]),
        (Criterion::Workload, workload(Slot::FIRST.0 + 1), [1, 0, 0]),
        (Criterion::Port, FilterKey::of(Criterion::Port, 80), [0, 11, 11]),
    ];
    // On one CPU packets keep their order, so the last one marks the end.
    on_one_cpu();
    for (criterion, choice, expected) in cases {
        let mut measured = Measured::start(FilterKeys::default().with(criterion, 3));
        own(&measured, namespace);
        let mut choices = measured.kernel.filter_map();
        choices.make([choice].into()).unwrap();
        nic(&mut measured, &wire, right);
        let clocks = measured.kernel.nic_clocks().unwrap();
        let read = wall_clock() - 1_000_000_000;
        clocks.set(NIC, &conversion(read));
        let receive = || injection.receive(&wire.right, right, nic_clock(read, wall_clock() - AGE)).unwrap();
        (0..10).for_each(|_| receive());
        let namespaces = FilterKey::of(Criterion::Namespace, namespace);
        choices.make([FilterKey::interface(namespace, right), namespaces, workload(Slot::FIRST.0)].into()).unwrap();
        receive();
        let counted = wait_for("the last packet to be counted", patience(Duration::from_secs(2)), || {
            let (measured, _, lost) = measured.of(NIC);
            let counted = [measured, lost[DriverLoss::NotFilterable as usize], lost.iter().sum()];
            (counted.iter().sum::<u64>() >= expected.iter().sum()).then_some(counted)
        });
        assert_eq!(counted, expected, "{choice:?}");
    }
}
