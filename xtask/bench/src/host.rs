//! The machine of a measurement.

use std::fs;

/// Describes kernel, processor and load, without which figures cannot be compared.
pub fn description() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let load = read("/proc/loadavg");
    format!(
        "Linux {}, {cpus} x {}, load average {}",
        read("/proc/sys/kernel/osrelease").trim(),
        model.unwrap_or("unknown processor"),
        load.split(' ').next().unwrap_or("unknown")
    )
}
