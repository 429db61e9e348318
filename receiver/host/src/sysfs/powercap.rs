//! Zones of RAPL in `class/powercap` (Documentation/power/powercap/powercap.rst in the kernel). Intel's driver serves AMD's
//! processors too, since Linux 5.11.

use std::{collections::BTreeMap, fs, io, path::Path};

use super::{Driver, Meter, Object, Quantity, Unreadable, entries, name, number};
use crate::telemetry::Microjoules;

/// The control type that wins if two control types have zones of one name.
const PREFERRED: &str = "intel-rapl";

/// Reads every zone once. `intel-rapl-mmio` repeats the package of `intel-rapl` on some laptops: its zones count only if
/// `intel-rapl` has no readable zone of their name.
pub fn read(class: &Path) -> Vec<Meter> {
    let mut zones: BTreeMap<String, (bool, Meter)> = BTreeMap::new();
    for entry in entries(class) {
        let Some((control, _)) = entry.split_once(':') else { continue };
        let Some(meter) = zone(class, &entry) else { continue };
        let is_preferred = control == PREFERRED;
        let rank = |preferred: bool, meter: &Meter| (meter.reading.is_ok(), preferred);
        match zones.get(&meter.id) {
            Some((preferred, known)) if rank(*preferred, known) >= rank(is_preferred, &meter) => {}
            _ => drop(zones.insert(meter.id.clone(), (is_preferred, meter))),
        }
    }
    zones.into_values().map(|(_, meter)| meter).collect()
}

/// Returns true if the zones are links without targets. Container engines mount an empty folder over their targets in
/// `/sys/devices/virtual/powercap`.
pub fn is_hidden(class: &Path) -> bool {
    let is_dangling = |entry: &String| {
        let path = class.join(entry);
        path.is_symlink() && fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    entries(class).iter().any(is_dangling)
}

/// Reads a zone; `None` for zones that are not parts of a node, or have no name.
fn zone(class: &Path, entry: &str) -> Option<Meter> {
    let own = name(&class.join(entry).join("name")).ok()?;
    let object = object(&own)?;
    // `intel-rapl:0:1` is a part of `intel-rapl:0`.
    let parent = entry.rsplit_once(':').filter(|(parent, _)| parent.contains(':'));
    let parent = parent.and_then(|(parent, _)| name(&class.join(parent).join("name")).ok());
    let id = parent.map_or_else(|| own.clone(), |parent| format!("{parent}/{own}"));
    Some(Meter { id, driver: Driver::Rapl, object, reading: counter(&class.join(entry)) })
}

fn counter(zone: &Path) -> Result<Quantity, Unreadable> {
    let range = match number(&zone.join("max_energy_range_uj")) {
        Ok(range) => Some(Microjoules(range)).filter(|range| range.0 > 0),
        Err(Unreadable::Missing) => None,
        Err(error) => return Err(error),
    };
    let energy = number(&zone.join("energy_uj"))?;
    if range.is_some_and(|range| energy > range.0) {
        Err(Unreadable::Garbage)
    } else {
        Ok(Quantity::Energy(Microjoules(energy), range))
    }
}

/// Returns the object of a zone by its name: `rapl_init_domains` and `rapl_add_package` in drivers/powercap/intel_rapl_common.c (Linux
/// 5.10 to 6.18) writes `package-0`, `package-0-die-1`, `core`, `uncore`, `dram`, `psys` and `psys-1`.
fn object(name: &str) -> Option<Object> {
    match name {
        "core" => Some(Object::Core),
        "uncore" => Some(Object::Uncore),
        "dram" => Some(Object::Dram),
        _ if name.starts_with("package-") => Some(Object::Package),
        _ if name == "psys" || name.starts_with("psys-") => Some(Object::Platform),
        _ => None,
    }
}
