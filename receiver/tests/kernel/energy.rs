//! Energy of recorded power meters and of the model.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use undercurrent::sysfs::{ROOT, Sysfs};

use super::support::{
    line::{Line, Point},
    meters::{Meters, RANGE},
    sidecar::{BINARY, Sidecar, command, file},
    surroundings::{alone, often, patience, skip},
    truth::{exactly, record},
};

const DIVIDED: &str = "undercurrent.energy";
const MEASURED: &str = "hw.energy";
const PLATFORM: &str = "hw.host.energy";
const CPU_TIME: &str = "undercurrent.cpu.time";

fn sidecar(meters: &Meters, configuration: &str) -> Sidecar {
    let file = file(configuration);
    let arguments = ["--sysfs-root", meters.root(), "--config", file.path().to_str().unwrap()];
    Sidecar::start_with(often(), &arguments, &[])
}

/// Returns the CPU time of this thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Returns the energy of a zone.
fn zone(line: &Line, metric: &str, id: &str) -> Option<f64> {
    line.find(metric, &[("hw.id", id)]).map(Point::amount).next()
}

#[test]
fn a_recorded_zone_has_its_growth_over_a_wrap() {
    let Some(_alone) = alone("energy of a recorded zone") else { return };
    let before = RANGE - 2_000_000;
    let meters = Meters::with(&[("0", "package-0", before), ("0:0", "core", 5), ("1", "psys", 7)]);
    let sidecar = sidecar(&meters, "");
    sidecar.snapshot();
    meters.set("0", before + 3_500_000);
    meters.set("1", 9_000_007);
    let line = sidecar.snapshot();
    record(MEASURED, zone(&line, MEASURED, "package-0").unwrap(), exactly(3.5));
    record(PLATFORM, zone(&line, PLATFORM, "psys").unwrap(), exactly(9.0));
    assert_eq!(zone(&line, MEASURED, "package-0/core"), Some(0.0));
    assert_eq!(zone(&line, MEASURED, "psys"), None);
    assert_eq!(line.find(DIVIDED, &[("undercurrent.energy.source", "rapl")]).count(), line.find(DIVIDED, &[]).count());
}

#[test]
fn the_parts_of_every_workload_are_the_whole() {
    let Some(_alone) = alone("energy of all workloads") else { return };
    let meters = Meters::with(&[("0", "package-0", 5), ("0:0", "dram", 5), ("1", "package-1", RANGE - 9_000_000)]);
    let sidecar = sidecar(&meters, "signals: {energy: {idle: 5W}}");
    let consumers = [("0", 5, 31), ("0:0", 5, 7), ("1", RANGE - 9_000_000, 13)];
    let consumers = consumers.map(|(zone, from, watts)| meters.consume(zone, from, watts));
    thread::sleep(Duration::from_secs(2));
    drop(consumers);
    let line = sidecar.snapshot();
    let measured = |ids: &[&str]| ids.iter().map(|id| zone(&line, MEASURED, id).unwrap()).sum::<f64>();
    let divided = |domain| line.total(DIVIDED, &[("undercurrent.energy.domain", domain)]);
    let (packages, memory) = (measured(&["package-0", "package-1"]), measured(&["package-0/dram"]));
    assert!(packages > 40.0 && memory > 7.0, "{packages} J and {memory} J in two seconds");
    record(DIVIDED, divided("cpu"), exactly(packages));
    record(DIVIDED, divided("memory"), exactly(memory));
    // 5 W of 44 W.
    let idle = line.total(DIVIDED, &[("undercurrent.energy.use", "idle"), ("undercurrent.energy.domain", "cpu")]);
    assert!((0.0..0.9 * packages).contains(&idle), "{idle} J of {packages} J are idle");
}

#[test]
fn a_model_is_linear_in_the_cpu_time() {
    let Some(_alone) = alone("energy of a model") else { return };
    let sidecar = sidecar(&Meters::none(), "signals: {energy: {model: 10W..110W}}");
    // Each snapshot divides the energy until some time during the snapshot.
    let start = Instant::now();
    let before = sidecar.snapshot();
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(2));
    let shortest = begun.elapsed();
    let after = sidecar.snapshot();
    let seconds = shortest.as_secs_f64()..=start.elapsed().as_secs_f64();
    let total = |metric, of: &[(&str, &str)]| after.total(metric, of) - before.total(metric, of);
    let (idle, all) = (total(DIVIDED, &[("undercurrent.energy.use", "idle")]), total(DIVIDED, &[]));
    assert!(seconds.contains(&(idle / 10.0)), "{idle} J in {seconds:?} s");
    let cpus = thread::available_parallelism().unwrap().get() as f64;
    record(DIVIDED, all, exactly((100.0 / cpus).mul_add(total(CPU_TIME, &[]), idle)));
    let estimates = after.find(DIVIDED, &[("undercurrent.energy.source", "model")]).count();
    assert_eq!(estimates, after.find(DIVIDED, &[]).count(), "every point is marked");
    assert_eq!(after.find(MEASURED, &[]).count(), 0, "an estimate is not measured");
}

#[test]
fn cpu_time_is_current_beside_energy() {
    const WORK: Duration = Duration::from_secs(1);
    let Some(_alone) = alone("CPU time beside energy") else { return };
    let sidecar = sidecar(&Meters::none(), "signals: {energy: {model: 10W..110W}}");
    let before = sidecar.snapshot();
    let (work, start) = (own_time(), Instant::now());
    while own_time() - work < WORK {
        assert!(start.elapsed() < patience(WORK * 10), "this process gets no CPU time");
    }
    let after = sidecar.snapshot();
    let grown = after.total(CPU_TIME, &[]) - before.total(CPU_TIME, &[]);
    assert!(grown >= 0.95 * WORK.as_secs_f64(), "{grown} s, although this process alone worked for {WORK:?}");
}

#[test]
fn without_meters_and_model_there_is_no_energy() {
    let Some(_alone) = alone("no energy") else { return };
    let sidecar = sidecar(&Meters::none(), "");
    let line = sidecar.snapshot();
    for metric in [DIVIDED, MEASURED, PLATFORM] {
        assert_eq!(line.find(metric, &[]).count(), 0, "{metric}");
    }
}

#[test]
fn a_root_that_is_no_sysfs_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(BINARY).args(["doctor", "--json", "--sysfs-root"]).arg(folder.path()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let signal = report["signals"].as_array().unwrap().iter().find(|signal| signal["signal"] == "energy").unwrap();
    assert_eq!(signal["status"], "unavailable");
    assert!(signal["reasons"].to_string().contains("mount sysfs there"), "{signal}");
}

#[test]
fn zones_that_vanish_have_no_points_and_those_that_appear_start_new_series() {
    let Some(_alone) = alone("zones that come and go") else { return };
    let meters = Meters::with(&[("0", "package-0", 5)]);
    let sidecar = sidecar(&meters, "");
    let start = sidecar.snapshot().find(MEASURED, &[]).next().unwrap().start;
    let path = std::path::Path::new(meters.root()).join("class/powercap/intel-rapl:0");
    let hidden = std::path::Path::new(meters.root()).join("hidden");
    std::fs::rename(&path, &hidden).unwrap();
    assert_eq!(sidecar.snapshot().find(MEASURED, &[]).count(), 0);
    std::fs::rename(&hidden, &path).unwrap();
    let line = sidecar.snapshot();
    assert!(line.find(MEASURED, &[]).next().unwrap().start > start);
    std::fs::write(path.join("energy_uj"), "garbage").unwrap();
    assert_eq!(sidecar.snapshot().find(MEASURED, &[]).count(), 0);
    drop(sidecar);
}

#[test]
fn energy_is_divided_from_the_first_growth_of_a_zone_that_appears() {
    let Some(_alone) = alone("energy of a zone that appears") else { return };
    let meters = Meters::with(&[("0", "package-0", 5)]);
    let path = std::path::Path::new(meters.root()).join("class/powercap/intel-rapl:0");
    let hidden = std::path::Path::new(meters.root()).join("hidden");
    std::fs::rename(&path, &hidden).unwrap();
    let sidecar = sidecar(&meters, "signals: {energy: {idle: 0W}}");
    assert_eq!(sidecar.snapshot().find(DIVIDED, &[]).count(), 0);
    std::fs::rename(&hidden, &path).unwrap();
    sidecar.snapshot();
    meters.set("0", 2_000_005);
    let line = sidecar.snapshot();
    let divided = line.total(DIVIDED, &[]);
    assert!((divided - 2.0).abs() < 1e-6, "{divided} J");
}

/// Returns the share of the model's dynamic power while every CPU is busy, with the topology below a root of sysfs.
fn share_of_busy_cpus(ratio: &str, sysfs: &str) -> f64 {
    let processor = format!("processor: {{events: software, hyper_thread_ratio: {ratio}}}");
    let file = file(&format!("signals: {{energy: {{model: 0W..100W}}, {processor}}}"));
    let arguments = ["--sysfs-root", sysfs, "--config", file.path().to_str().unwrap()];
    let sidecar = Sidecar::start_with(often(), &arguments, &[]);
    let cpus = thread::available_parallelism().unwrap().get();
    let end = Arc::new(AtomicBool::new(false));
    let burn = |_| {
        let end = Arc::clone(&end);
        thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    // One thread on each CPU.
    let burners: Vec<_> = (0..cpus).map(burn).collect();
    sidecar.snapshot();
    let before = sidecar.snapshot();
    // Long compared with the interval between snapshots, which is the error of both ends.
    thread::sleep(Duration::from_secs(3));
    let after = sidecar.snapshot();
    end.store(true, Ordering::Relaxed);
    burners.into_iter().for_each(|burner| burner.join().unwrap());
    let energy = after.total(DIVIDED, &[]) - before.total(DIVIDED, &[]);
    energy / (100.0 * (after.time - before.time) as f64 / 1e9)
}

/// Both threads of a core are busy, so each cycle counts for the half of the ratio.
fn assert_weighted(sysfs: &str) {
    for (ratio, expected) in [("1.1", 0.55), ("2.0", 1.0)] {
        let share = share_of_busy_cpus(ratio, sysfs);
        eprintln!("{share:.3} of the dynamic power at a ratio of {ratio}");
        assert!((share - expected).abs() < 0.08, "{share} instead of {expected}");
    }
}

#[test]
fn cycles_beside_a_busy_sibling_of_a_recorded_topology_count_for_less() {
    let Some(_alone) = alone("energy of recorded hyper-threads") else { return };
    let cpus = thread::available_parallelism().unwrap().get();
    if !cpus.is_multiple_of(2) {
        return skip("hyper-threads: an odd number of CPUs has no pairs");
    }
    let meters = Meters::none();
    (0..cpus).for_each(|cpu| meters.pair(cpu));
    assert_weighted(meters.root());
}

#[test]
#[ignore = "for a virtual machine with two threads on each core; `cargo xtask test --only vm-threads` runs it"]
fn vm_threads_cycles_beside_a_busy_sibling_count_for_less() {
    let Some(_alone) = alone("energy of hyper-threads") else { return };
    let siblings = Sysfs::new(ROOT.into()).siblings(2);
    assert_eq!(siblings, [Some(1), Some(0)], "the guest has two threads on a core");
    assert_weighted(ROOT);
}
