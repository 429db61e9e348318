//! Conservation: the parts of every reading add up to it.

use proptest::prelude::*;

use super::*;

fn amount(energy: u64, idle: u64) -> Amount {
    Amount {
        domain: Domain::Cpu,
        origin: Origin::Rapl,
        basis: Basis::CpuTime,
        energy: Microjoules(energy),
        idle: Microjoules(idle),
    }
}

const fn start(_: Slot) -> Option<UnixNanos> {
    Some(UnixNanos(1))
}

fn uses(of: &[(u16, u64, u64)]) -> BTreeMap<Slot, CpuUse> {
    of.iter().map(|&(slot, network, compute)| (Slot(slot), CpuUse { network, compute })).collect()
}

#[test]
fn the_active_part_is_divided_by_use() {
    let mut accounts = Accounts::default();
    accounts.divide(amount(100, 20), &uses(&[(5, 10, 30), (6, 0, 40)]), start);
    let of = |slot, used| accounts.total(Slot(slot), used).0;
    assert_eq!((of(5, Use::Network), of(5, Use::Compute), of(6, Use::Network), of(6, Use::Compute)), (10, 30, 0, 40));
    assert_eq!(accounts.total(Slot::NODE, Use::Idle).0, 20);
    let network = accounts.points().flat_map(|(_, points)| points).count();
    assert_eq!(network, 4, "no point has a zero");
}

#[test]
fn energy_without_any_use_is_the_nodes() {
    let mut accounts = Accounts::default();
    accounts.divide(amount(100, 20), &uses(&[(5, 0, 0)]), start);
    assert_eq!((accounts.total(Slot::NODE, Use::Compute).0, accounts.total(Slot::NODE, Use::Idle).0), (80, 20));
}

#[test]
fn a_released_slot_starts_again() {
    let mut accounts = Accounts::default();
    accounts.divide(amount(100, 0), &uses(&[(5, 0, 1)]), start);
    accounts.retain(|slot| Some(UnixNanos(if slot == Slot(5) { 2 } else { 1 })));
    assert_eq!(accounts.points().count(), 0);
}

proptest! {
    /// Workloads come and go, energies, idle powers and uses are arbitrary: no microjoule is lost or counted twice.
    #[test]
    fn parts_add_up_to_every_reading(
        schedule in proptest::collection::vec(
            (0_u64..1 << 40, 0_u64..1 << 40, proptest::collection::btree_map(2_u16..40, (0_u64..1 << 50, 0_u64..1 << 50), 0..20)),
            1..30,
        ),
    ) {
        let (mut accounts, mut total) = (Accounts::default(), 0);
        for (energy, idle, workloads) in schedule {
            let known = uses(&workloads.iter().map(|(slot, (network, compute))| (*slot, *network, *compute)).collect::<Vec<_>>());
            accounts.divide(amount(energy, idle), &known, start);
            total += energy;
            prop_assert_eq!(accounts.sum(Domain::Cpu), Microjoules(total));
        }
    }

    /// The use of a workload that is not known any more is not divided.
    #[test]
    fn unknown_slots_receive_nothing(energy in 0_u64..1 << 50, network in 1_u64..1 << 50) {
        let mut accounts = Accounts::default();
        let known = |slot| (slot != Slot(5)).then_some(UnixNanos(1));
        accounts.divide(amount(energy, 0), &uses(&[(5, network, 7), (6, 1, 1)]), known);
        prop_assert_eq!(accounts.total(Slot(5), Use::Network), Microjoules(0));
        prop_assert_eq!(accounts.sum(Domain::Cpu), Microjoules(energy));
    }
}
