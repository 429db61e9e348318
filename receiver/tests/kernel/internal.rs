//! Compares the sidecar's internal telemetry with the kernel's data about its processes, programs and maps, and
//! with a collector's data.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, thread,
    time::Duration,
};

use aya::{maps::loaded_maps, programs::loaded_programs};
use opentelemetry_proto::tonic::{common::v1::any_value, logs::v1::LogRecord};
use rustix::process::{Pid, Signal, kill_process};
use undercurrent::{
    kernel::hooks::{Attachment, Program},
    signals::all_hooks,
    workloads::Mounts,
};

use super::support::{
    attached::attached,
    cgroups::Group,
    collector::{Collector, Delivery},
    counters::cpu_time,
    line::{Line, Point, Value},
    processes::family,
    sidecar::{BINARY, Sidecar, command, wall_clock},
    surroundings::{alone, often, patience, skip, virtual_machine, wait_for},
    truth::{exactly, record},
};

/// Every point of internal telemetry.
const DETAILED: &str = "internal: detailed";
const STATUS: &str = "undercurrent.hook.status";
const MEMORY: &str = "undercurrent.map.memory";
const LOST: &str = "undercurrent.lost";
const EXPORTED: &str = "otel.sdk.exporter.metric_data_point.exported";
const EXPORT: &str = "otel.sdk.exporter.operation.duration";

/// Returns the names of the programs that the processes of a sidecar hold, cut at the kernel's limit
/// (`BPF_OBJ_NAME_LEN`).
fn programs(sidecar: &Sidecar) -> Vec<String> {
    let held = attached(sidecar.pid()).programs;
    let loaded = loaded_programs().filter_map(Result::ok).filter(|program| held.contains(&program.id()));
    loaded.filter_map(|program| program.name_as_str().map(str::to_owned)).collect()
}

#[test]
fn hooks_are_served_by_programs_that_the_kernel_has() {
    let Some(_alone) = alone("status of hooks") else { return };
    let sidecar = Sidecar::start(often());
    let (line, programs) = (sidecar.snapshot(), programs(&sidecar));
    let served = line.find(STATUS, &[]).filter_map(|point| {
        let hook = all_hooks().into_iter().find(|hook| hook.name == point.attributes["undercurrent.hook"])?;
        // A hook that another hook's programs serve names that hook.
        let by = point.attributes.get("undercurrent.alternate")?;
        let alternate = hook.alternates.iter().find(|alternate| alternate.name == by)?;
        Some((point.amount(), alternate.programs))
    });
    let served: Vec<(f64, &[Program<'_>])> = served.collect();
    let is_loaded = |program: &Program<'_>| programs.iter().any(|name| program.symbol.starts_with(name));
    let loaded = served.iter().filter(|(_, programs)| programs.iter().all(is_loaded)).count();
    record(STATUS, served.iter().map(|(value, _)| value).sum(), exactly(loaded as f64));
    assert_eq!(served.iter().map(|(_, of)| of.len()).sum::<usize>(), programs.len(), "{programs:?}");
}

/// Returns the bytes of the maps that the processes of a sidecar hold, by name, as the kernel accounts for them
/// (`memlock`).
fn accounted(sidecar: &Sidecar) -> BTreeMap<String, f64> {
    let folders = family(sidecar.pid()).into_iter().map(|process| fs::read_dir(format!("/proc/{process}/fdinfo")));
    let texts = folders.flatten().flatten().flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
    let number =
        |text: &str, name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
    let bytes: BTreeMap<u32, u32> =
        texts.filter_map(|text| Some((number(&text, "map_id:")?, number(&text, "memlock:")?))).collect();
    let maps = loaded_maps().filter_map(Result::ok);
    maps.filter_map(|map| Some((map.name_as_str()?.to_owned(), f64::from(*bytes.get(&map.id())?)))).collect()
}

#[test]
fn memory_of_maps_is_what_the_kernel_accounts_for() {
    let Some(_alone) = alone("memory of maps") else { return };
    let sidecar = Sidecar::configured(DETAILED);
    let (line, accounted) = (sidecar.snapshot(), accounted(&sidecar));
    let (mut ours, mut kernels) = (0.0, 0.0);
    for point in line.find(MEMORY, &[]).filter(|point| point.amount() > 0.0) {
        let name = &point.attributes["undercurrent.map"];
        let counted = accounted.get(&name[..name.len().min(15)]);
        eprintln!("{name}: {}, {counted:?} by the kernel", point.amount());
        ours += point.amount();
        kernels += counted.unwrap_or_else(|| panic!("the kernel has no map {name}: {accounted:?}"));
    }
    record(MEMORY, ours, exactly(kernels));
}

/// The collection of a snapshot waits for the reader: it ends when a stopped reader goes on.
#[test]
fn a_collection_takes_as_long_as_its_reader_was_stopped() {
    let Some(_alone) = alone("duration of collections") else { return };
    const STOPPED: Duration = Duration::from_millis(600);
    let sidecar = Sidecar::start(often());
    sidecar.snapshot();
    // The worker starts the loader, and the loader the reader.
    let reader = Pid::from_raw(family(sidecar.pid()).last().unwrap().cast_signed()).unwrap();
    kill_process(reader, Signal::STOP).unwrap();
    thread::sleep(STOPPED);
    let resumed = wall_clock();
    kill_process(reader, Signal::CONT).unwrap();
    const DURATION: &str = "undercurrent.collect.duration";
    let duration = |line: &Line| line.find(DURATION, &[]).next().map(Point::amount);
    // The snapshot in progress has a time before the reader continued.
    sidecar.line("a snapshot after the long one", |line| line.time > resumed);
    let lines = sidecar.lines();
    let nth = lines.iter().position(|of| of.time > resumed).unwrap();
    let stopped = lines[nth - 1].time;
    record(DURATION, duration(&lines[nth]).unwrap(), exactly((resumed - stopped) as f64 / 1e9));
}

#[test]
fn points_of_lines_are_those_that_were_written() {
    let Some(_alone) = alone("points of lines") else { return };
    let sidecar = Sidecar::start(often());
    wait_for("some lines", patience(Duration::from_secs(5)), || (sidecar.lines().len() >= 5).then_some(()));
    let lines = sidecar.stop();
    let last = lines.last().unwrap();
    let written: usize = lines[..lines.len() - 1].iter().map(|line| line.points.len()).sum();
    let points = last.total(EXPORTED, &[("otel.component.type", "json")]);
    record(EXPORTED, points, exactly(written as f64));
}

/// The collector answers in the middle between two snapshots. The later snapshot includes the answer.
#[test]
fn deliveries_are_those_that_a_collector_saw() {
    let Some(_alone) = alone("deliveries to a collector") else { return };
    const DELAY: Duration = Duration::from_millis(400);
    let collector = Collector::start(DELAY, 3);
    let endpoint = collector.endpoint();
    let interval = if virtual_machine().is_some() { "4s" } else { "1s" };
    let sidecar = Sidecar::start_with(interval, &["--output", "otlp"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    wait_for("deliveries", patience(Duration::from_secs(15)), || (collector.deliveries().len() >= 7).then_some(()));
    let line = sidecar.snapshot();
    let deliveries = collector.deliveries();
    let until = |margin: i64, of: &dyn Fn(&Delivery) -> usize| {
        let before = line.time.saturating_add_signed(margin);
        deliveries.iter().filter(|delivery| delivery.time < before).map(of).sum::<usize>() as f64
    };
    // The transmission time of an answer.
    const MOMENT: i64 = 100_000_000;
    let bounds = |of: &dyn Fn(&Delivery) -> usize| until(-MOMENT, of)..=until(MOMENT, of);
    let outcome = |of: &Point, accepted: bool| {
        let error = of.attributes.get("error.type");
        of.attributes["otel.component.type"] == "otlp_grpc_metric_exporter" && error.is_none() == accepted
    };
    for accepted in [true, false] {
        let points: f64 = line.find(EXPORTED, &[]).filter(|of| outcome(of, accepted)).map(Point::amount).sum();
        assert!(points > 0.0, "{deliveries:?}");
        let expected = |delivery: &Delivery| if delivery.accepted == accepted { delivery.points } else { 0 };
        record(EXPORTED, points, bounds(&expected));
        let export = line.find(EXPORT, &[]).find(|of| outcome(of, accepted)).unwrap();
        let expected = bounds(&|delivery| usize::from(delivery.accepted == accepted));
        assert!(expected.contains(&export.amount()), "{export:?}: {deliveries:?}");
        let Value::Histogram(durations) = &export.value else { panic!("{export:?}") };
        record(EXPORT, durations.sum.unwrap() / export.amount(), exactly(DELAY.as_secs_f64()));
    }
}

/// Returns the resident kibibytes of a process in mappings of kernel maps.
fn in_kernel_maps(process: u32) -> f64 {
    let smaps = fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let (mut total, mut is_map) = (0.0, false);
    for line in smaps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if is_map => total += size.trim().trim_end_matches(" kB").parse::<f64>().unwrap(),
            Some(_) => {}
            None if line.split(' ').next().is_some_and(|range| range.contains('-')) => {
                is_map = line.contains("bpf-map")
            }
            None => {}
        }
    }
    total
}

/// Returns the resident bytes of processes: all memory of the first one without kernel maps, and the anonymous memory of the
/// others.
fn resident(processes: &[u32]) -> f64 {
    let status = |process: &u32| fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let kibibytes = |text: String, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap()
    };
    let others = processes[1..].iter().map(|process| kibibytes(status(process), "RssAnon:"));
    let maps = in_kernel_maps(processes[0]);
    assert!(maps > 0.0, "the worker maps no kernel map");
    1024.0 * (kibibytes(status(&processes[0]), "VmRSS:") - maps + others.sum::<f64>())
}

#[test]
fn the_sidecars_own_cost_is_the_kernels_account_of_its_processes() {
    let Some(_alone) = alone("the sidecar's own cost") else { return };
    let mounts = Mounts::read().unwrap();
    let Some(mount) = mounts.cpuacct.or(mounts.v2) else {
        return skip("the sidecar's own cost: no cgroups are mounted");
    };
    let group = Group::create(vec![mount.point], "").unwrap();
    let mut start = command("sh");
    start.args(["-c", r#"echo $$ >"$1/cgroup.procs" && shift && exec "$@""#, "sh"]).args(group.own()).arg(BINARY);
    let sidecar = Sidecar::start_by(start, often(), &[]);
    wait_for("some lines", patience(Duration::from_secs(5)), || (sidecar.lines().len() >= 8).then_some(()));
    let least = cpu_time(&group);
    let line = sidecar.snapshot();
    let most = cpu_time(&group);
    record("process.cpu.time", line.total("process.cpu.time", &[]), least..=most);
    record("process.memory.usage", line.total("process.memory.usage", &[]), exactly(resident(&family(sidecar.pid()))));
    drop(sidecar);
}

/// Returns the texts of log records.
fn texts(collector: &Collector) -> Vec<String> {
    let text = |record: &LogRecord| match record.body.as_ref().and_then(|body| body.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => panic!("a record has the body {other:?}"),
    };
    let logs = collector.logs();
    let scopes = logs.iter().flat_map(|resource| &resource.scope_logs);
    scopes.flat_map(|scope| &scope.log_records).map(text).collect()
}

#[test]
fn log_records_are_those_that_a_collector_saw() {
    const LOGS: &str = "otel.sdk.exporter.log.exported";
    let Some(_alone) = alone("log records at a collector") else { return };
    let collector = Collector::start(Duration::ZERO, usize::MAX);
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.endpoint())];
    let mut sidecar = Sidecar::start_with(often(), &["--output", "otlp"], &variables);
    let has_started = || texts(&collector).iter().any(|text| text.contains(" signals: ")).then_some(());
    wait_for("the record of the start", patience(Duration::from_secs(5)), has_started);
    let exported = |line: &Line| line.total(LOGS, &[]) == texts(&collector).len() as f64;
    let line = sidecar.line("all records in the count", exported);
    record(LOGS, line.total(LOGS, &[]), exactly(texts(&collector).len() as f64));
    let resource = collector.logs()[0].resource.clone().unwrap();
    let has_id = resource.attributes.iter().any(|attribute| attribute.key == "service.instance.id");
    assert!(has_id, "{resource:?}");
    let (status, _) = sidecar.signal(Signal::TERM);
    assert!(status.success(), "{status}");
    assert!(
        texts(&collector).iter().any(|text| text.contains("snapshots to output `otlp`")),
        "{:?}",
        texts(&collector)
    );
}

#[test]
fn logs_stay_on_standard_error_on_request() {
    let Some(_alone) = alone("logs on standard error") else { return };
    let collector = Collector::start(Duration::ZERO, usize::MAX);
    let endpoint = collector.endpoint();
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_LOGS_EXPORTER", "none")];
    let sidecar = Sidecar::start_with(often(), &["--output", "otlp"], &variables);
    wait_for("deliveries", patience(Duration::from_secs(15)), || (collector.deliveries().len() >= 3).then_some(()));
    drop(sidecar);
    assert!(collector.logs().is_empty(), "{:?}", collector.logs());
}

#[test]
fn basic_telemetry_has_only_losses_that_occurred_and_current_states() {
    let Some(_alone) = alone("series of the sidecar") else { return };
    let sidecar = Sidecar::start(often());
    let line = sidecar.snapshot();
    let hooks: BTreeSet<&String> = line.find(STATUS, &[]).map(|point| &point.attributes["undercurrent.hook"]).collect();
    assert!(hooks.len() > 2, "{hooks:?}");
    assert_eq!(line.find(STATUS, &[]).count(), hooks.len(), "a hook has one state");
    let mut points = line.find(STATUS, &[]).chain(line.find(LOST, &[]));
    assert!(points.all(|point| point.amount() > 0.0));
    assert_eq!(line.find(MEMORY, &[]).count(), 1, "the maps have one total");
}

#[test]
fn the_heartbeat_has_the_version() {
    let Some(_alone) = alone("the heartbeat") else { return };
    const INFO: &str = "undercurrent.build.info";
    let printed = command(BINARY).arg("--version").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let sidecar = Sidecar::start(often());
    for line in [sidecar.snapshot(), sidecar.snapshot()] {
        let points: Vec<&Point> = line.find(INFO, &[]).collect();
        let versions: Vec<String> =
            points.iter().map(|point| format!("undercurrent {}\n", point.attributes["undercurrent.version"])).collect();
        assert_eq!(versions, [printed.as_str()]);
        record(INFO, points[0].amount(), exactly(1.0));
    }
}

/// A loss has a series if it occurred or if the attached hooks can cause it.
#[test]
fn losses_that_cannot_occur_have_no_series() {
    let Some(_alone) = alone("series of losses") else { return };
    let sidecar = Sidecar::configured(DETAILED);
    let line = sidecar.snapshot();
    let lost: Vec<&Point> = line.find(LOST, &[]).collect();
    let of_node =
        lost.iter().filter(|point| point.resource.get("service.name").is_some_and(|name| name == "undercurrent"));
    let sum = of_node.map(|point| point.amount()).sum();
    record("undercurrent.lost.events", line.total("undercurrent.lost.events", &[]), exactly(sum));
    let with =
        |reason: &'static str| lost.iter().filter(move |point| point.attributes["undercurrent.reason"] == reason);
    for conditional in ["not_filterable", "group_limit", "unknown_interface"] {
        assert_eq!(with(conditional).count(), 0, "neither filters nor groups are configured: {lost:?}");
    }
    assert!(with("negative").chain(with("above_range")).all(|point| point.amount() > 0.0), "{lost:?}");
    assert!(with("no_timestamp").count() > 0, "{lost:?}");
    // Hooks with programs of their own. The kernel skips no program of a cgroup.
    let of_cgroups = |program: &Program| {
        matches!(program.attachment, Attachment::CgroupIngress | Attachment::CgroupSocket | Attachment::CgroupRead)
    };
    let own = |point: &&Point| {
        let hook = all_hooks().into_iter().find(|hook| hook.name == point.attributes["undercurrent.hook"]).unwrap();
        let by = point.attributes.get("undercurrent.alternate");
        let alternate = by.and_then(|by| hook.alternates.iter().find(|alternate| alternate.name == by));
        alternate.is_some_and(|alternate| !alternate.programs.iter().all(of_cgroups))
    };
    let hooks = |points: Vec<&Point>| -> BTreeSet<String> {
        points.into_iter().map(|point| point.attributes["undercurrent.hook"].clone()).collect()
    };
    let expected = hooks(line.find(STATUS, &[]).filter(|point| point.amount() > 0.0).filter(own).collect());
    assert_eq!(hooks(with("recursion").copied().collect()), expected);
    let zero = lost.iter().filter(|point| point.amount() == 0.0).count();
    eprintln!("{} points, {} losses, {zero} of them zero", line.points.len(), lost.len());
}
