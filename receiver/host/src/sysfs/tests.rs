//! Tests on trees with the layouts of several machines, and on invalid ones.

use std::{fs, io};

use proptest::prelude::*;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;
use crate::telemetry::{Microjoules, Watts};

/// Writes a tree from lines of a path and a content.
pub fn tree(listing: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for line in listing.lines().filter(|line| !line.starts_with('#')) {
        let (path, content) = line.split_once(' ').expect("a path and a content");
        write(root.path(), path, content);
    }
    root
}

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    fs::write(path, format!("{content}\n")).expect("written");
}

fn meters(root: &tempfile::TempDir) -> Meters {
    Sysfs::new(root.path().to_owned()).meters()
}

fn read(listing: &str) -> Vec<Meter> {
    let Meters { meters, problem } = meters(&tree(listing));
    assert_eq!(problem, None);
    meters
}

/// Returns the object and the reading of a meter.
fn one(meters: &[Meter], id: &str) -> (Object, Result<Quantity, Unreadable>) {
    let meter = meters.iter().find(|meter| meter.id == id).unwrap_or_else(|| panic!("{id} is not in {meters:?}"));
    (meter.object, meter.reading.clone())
}

fn energy(microjoules: u64, range: u64) -> Result<Quantity, Unreadable> {
    Ok(Quantity::Energy(Microjoules(microjoules), Some(Microjoules(range)).filter(|range| range.0 > 0)))
}

#[test]
fn zones_of_a_laptop_count_once_by_name() {
    let meters = read(include_str!("../../../fixtures/sysfs/intel-laptop.txt"));
    let ids: Vec<_> = meters.iter().map(|meter| meter.id.as_str()).collect();
    assert_eq!(ids, ["package-0", "package-0/core", "package-0/uncore", "psys"]);
    assert_eq!(one(&meters, "package-0"), (Object::Package, energy(61_804_113_273, 262_143_328_850)));
    assert_eq!(one(&meters, "package-0/uncore").0, Object::Uncore);
    assert_eq!(one(&meters, "psys").0, Object::Platform);
}

#[test]
fn sockets_have_separate_zones() {
    let meters = read(include_str!("../../../fixtures/sysfs/intel-server.txt"));
    assert_eq!(one(&meters, "package-0/dram"), (Object::Dram, energy(2_000_000, 65_712_999_613)));
    assert_eq!(one(&meters, "package-1/dram"), (Object::Dram, energy(4_000_000, 65_712_999_613)));
    assert_eq!(one(&meters, "package-1").0, Object::Package);
    let platform = one(&meters, "power_meter/power1");
    assert_eq!(platform, (Object::Platform, Ok(Quantity::Power(Watts::new(312)))));
}

#[test]
fn amd_has_the_zones_of_powercap_or_counters_of_hwmon() {
    let meters = read(include_str!("../../../fixtures/sysfs/amd-server.txt"));
    assert_eq!(meters.len(), 2, "a graphics card is not a part of any domain");
    assert_eq!(one(&meters, "package-0/core").0, Object::Core);
    let meters = read(include_str!("../../../fixtures/sysfs/amd-energy.txt"));
    assert_eq!(one(&meters, "amd_energy/Esocket1"), (Object::Package, energy(9_309_000_000, 0)));
    assert_eq!(one(&meters, "amd_energy/Ecore001").0, Object::Core);
}

#[test]
fn sensors_of_arm_servers_are_powers() {
    let meters = read(include_str!("../../../fixtures/sysfs/arm-server.txt"));
    let expected = (Object::Package, Ok(Quantity::Power(Watts::from_microwatts(22_500_000))));
    assert_eq!(one(&meters, "apm_xgene/CPU power"), expected);
}

#[test]
fn a_duplicate_zone_replaces_an_unreadable_one() {
    let mmio = "class/powercap/intel-rapl-mmio:0/name package-0\nclass/powercap/intel-rapl-mmio:0/energy_uj 7\n";
    let listing =
        format!("{mmio}class/powercap/intel-rapl:0/name package-0\nclass/powercap/intel-rapl:0/energy_uj junk");
    assert_eq!(one(&read(&listing), "package-0"), (Object::Package, energy(7, 0)));
    assert_eq!(one(&read(&listing.replace("junk", "9")), "package-0").1, energy(9, 0));
}

#[test]
fn two_devices_of_one_driver_have_separate_ids() {
    let listing = "class/hwmon/hwmon1/name power_meter\nclass/hwmon/hwmon1/power1_average 1\n\
                   class/hwmon/hwmon2/name power_meter\nclass/hwmon/hwmon2/power1_average 2\n";
    let ids: Vec<_> = read(listing).into_iter().map(|meter| meter.id).collect();
    assert_eq!(ids, ["hwmon2/power1", "power_meter/power1"]);
}

#[test]
fn garbage_is_reported_and_never_a_number() {
    let long = "9".repeat(5000);
    for garbage in ["", "-1", "1.5", "0x10", "1 2", "99999999999999999999", "\u{7f}", "262143328851", &long] {
        let root = tree(
            "class/powercap/intel-rapl:0/name package-0\n\
             class/powercap/intel-rapl:0/max_energy_range_uj 262143328850\n",
        );
        write(root.path(), "class/powercap/intel-rapl:0/energy_uj", garbage);
        let reading = one(&meters(&root).meters, "package-0").1;
        assert!(matches!(reading, Err(Unreadable::Garbage | Unreadable::Failed(_))), "{garbage}: {reading:?}");
    }
    let nameless = "class/powercap/intel-rapl:0/name pack\u{1b}[2J\nclass/powercap/intel-rapl:0/energy_uj 5";
    assert_eq!(read(nameless), []);
    let absurd = "class/hwmon/hwmon0/name power_meter\nclass/hwmon/hwmon0/power1_average 100000000001";
    assert_eq!(one(&read(absurd), "power_meter/power1").1, Err(Unreadable::Garbage));
}

#[test]
fn special_files_are_not_read() {
    let root = tree("class/powercap/intel-rapl:0/name package-0");
    mkfifoat(CWD, root.path().join("class/powercap/intel-rapl:0/energy_uj"), Mode::RUSR).expect("a pipe");
    assert!(matches!(one(&meters(&root).meters, "package-0").1, Err(Unreadable::Failed(_))));
}

#[test]
fn a_counter_that_only_root_may_read_is_reported() {
    let denied = Unreadable::from(io::Error::from(io::ErrorKind::PermissionDenied));
    assert_eq!(denied, Unreadable::Denied);
    assert!(denied.to_string().contains("grant CAP_DAC_READ_SEARCH"));
    assert_eq!(Unreadable::from(io::Error::from(io::ErrorKind::NotFound)), Unreadable::Missing);
}

#[test]
fn siblings_are_in_the_topology() {
    let cpu = |cpu: u32, list: &str| format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list {list}\n");
    let of = |lists: &[&str]| {
        let listing: String = (0..).zip(lists).map(|(number, list)| cpu(number, list)).collect();
        Sysfs::new(tree(&listing).path().to_owned()).siblings(lists.len())
    };
    assert_eq!(of(&["0,2", "1,3", "0,2", "1,3"]), [Some(2), Some(3), Some(0), Some(1)]);
    assert_eq!(of(&["0-1", "0-1"]), [Some(1), Some(0)]);
    assert_eq!(of(&["0", "1"]), [None, None]);
    assert_eq!(of(&["0-4294967295", "x", "0-9"]), [None, None, None]);
    assert_eq!(of(&["0-3", "0-3", "0-3", "0-3"]), [Some(1), Some(2), Some(3), Some(0)]);
    assert_eq!(Sysfs::new("/nonexistent".into()).siblings(2), [None, None]);
}

#[test]
fn a_folder_that_is_not_sysfs_has_a_problem() {
    let root = tree("etc/passwd root");
    let Meters { meters, problem } = meters(&root);
    assert_eq!(meters, []);
    assert!(problem.is_some_and(|problem| problem.contains("class")));
    assert!(Sysfs::new("/nonexistent".into()).meters().problem.is_some());
    assert_eq!(read("class/net/lo/mtu 65536"), []);
}

proptest! {
    #[test]
    fn any_content_is_read_without_panic(name in ".{0,70}", energy in ".{0,40}", range in "[0-9]{0,25}") {
        let root = tempfile::tempdir().expect("a folder");
        for (file, content) in [("name", &name), ("energy_uj", &energy), ("max_energy_range_uj", &range)] {
            write(root.path(), &format!("class/powercap/intel-rapl:0/{file}"), content);
        }
        prop_assert!(meters(&root).meters.len() <= 1);
    }
}
