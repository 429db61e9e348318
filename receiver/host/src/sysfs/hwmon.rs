//! Energy counters and power sensors of hwmon (Documentation/hwmon/sysfs-interface.rst in the kernel), with ACPI power meters
//! among them. hwmon has no common names for the measured parts, so each driver is known by its name.

use std::{collections::BTreeMap, path::Path};

use super::{Driver, Meter, Object, Quantity, Unreadable, entries, name, number};
use crate::telemetry::{Microjoules, Watts};

/// The most sensors of a device that are read.
const SENSORS: usize = 128;
/// The highest power of a sensor. A larger number is garbage.
const HIGHEST: Watts = Watts::new(100_000);

/// Reads the sensors of every known driver.
pub fn read(class: &Path) -> Vec<Meter> {
    let mut meters: BTreeMap<String, Meter> = BTreeMap::new();
    for device in entries(class) {
        // The attributes of older drivers, the driver of ACPI power meters among them, are in `device`.
        for folder in [class.join(&device), class.join(&device).join("device")] {
            let driver = name(&folder.join("name")).or_else(|_| name(&class.join(&device).join("name")));
            let Ok(driver) = driver else { continue };
            for (sensor, meter) in sensors(&folder, &driver) {
                // Two devices of one driver have sensors of the same name: the number of the device makes the id unique.
                let id = if meters.contains_key(&meter.id) { format!("{device}/{sensor}") } else { meter.id.clone() };
                meters.entry(id.clone()).or_insert(Meter { id, ..meter });
            }
        }
    }
    meters.into_values().collect()
}

fn sensors(folder: &Path, driver: &str) -> Vec<(String, Meter)> {
    let mut known: BTreeMap<String, Meter> = BTreeMap::new();
    for file in entries(folder) {
        let Some((sensor, quantity)) = file.split_once('_') else { continue };
        let is_energy = sensor.starts_with("energy") && quantity == "input";
        let is_power = sensor.starts_with("power") && matches!(quantity, "input" | "average");
        // `power1_average` precedes `power1_input` in order. The average misses no peaks between two readings.
        if !(is_energy || is_power) || known.contains_key(sensor) || known.len() >= SENSORS {
            continue;
        }
        let label = name(&folder.join(format!("{sensor}_label"))).unwrap_or_else(|_| sensor.to_owned());
        let Some(object) = object(driver, &label) else { continue };
        let reading = if is_energy { energy(&folder.join(&file)) } else { power(&folder.join(&file)) };
        let meter = Meter { id: format!("{driver}/{label}"), driver: Driver::Hwmon, object, reading };
        known.insert(sensor.to_owned(), meter);
    }
    known.into_iter().collect()
}

fn energy(file: &Path) -> Result<Quantity, Unreadable> {
    number(file).map(|energy| Quantity::Energy(Microjoules(energy), None))
}

fn power(file: &Path) -> Result<Quantity, Unreadable> {
    let power = Watts::from_microwatts(number(file)?);
    if power > HIGHEST { Err(Unreadable::Garbage) } else { Ok(Quantity::Power(power)) }
}

/// Returns the object of a sensor by its driver and label, in the kernel's sources of Linux 5.10 to 6.18.
fn object(driver: &str, label: &str) -> Option<Object> {
    match driver {
        // drivers/hwmon/acpi_power_meter.c.
        "power_meter" => Some(Object::Platform),
        // drivers/hwmon/amd_energy.c, in the kernel until 5.12: one counter for each socket and each core.
        "amd_energy" | "zenergy" if label.starts_with("Esocket") => Some(Object::Package),
        "amd_energy" | "zenergy" if label.starts_with("Ecore") => Some(Object::Core),
        // drivers/hwmon/fam15h_power.c.
        "fam15h_power" => Some(Object::Package),
        // drivers/hwmon/xgene-hwmon.c.
        "apm_xgene" if label == "CPU power" => Some(Object::Package),
        "apm_xgene" if label == "IO power" => Some(Object::Uncore),
        _ => None,
    }
}
