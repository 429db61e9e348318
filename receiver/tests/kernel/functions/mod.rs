//! Compares CPU time from samples with the exact time of softirqs, and the functions of samples with the traffic.

#[cfg(target_arch = "x86_64")]
mod compat;
mod threads;
mod traffic;

use std::{
    collections::BTreeMap,
    fs, io,
    net::UdpSocket,
    ops::RangeInclusive,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use undercurrent::{
    kernel::text::Text,
    signals::network_functions::{self, EVENTS, Settings},
};

use rustix::process::Signal;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use self::traffic::{UDP_RECEIVE, UDP_SEND, expect};
use super::{
    cpu::Offline,
    softirq::started,
    support::{
        line::Line,
        load::Load,
        programs::OtherPrograms,
        sidecar::{BINARY, Sidecar, command, file},
        surroundings::{alone, cpus, often, on_one_cpu, patience, skip, virtual_machine, wait_for},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
};

const ESTIMATED: &str = "undercurrent.network.estimated_cpu.time";
const TIME: &str = "undercurrent.network.function.cpu.time";
const SAMPLES: &str = "undercurrent.network.function.samples";
const VARIANCE: &str = "undercurrent.network.estimated_cpu.variance";
const EXACT: &str = "undercurrent.network.cpu.time";
const RECEIVE: (&str, &str) = ("undercurrent.network.event", "receive_softirq");

/// Returns the samples per second of every CPU. An emulated CPU classifies stacks slowly.
fn frequency() -> u32 {
    if virtual_machine().is_some() { 199 } else { 997 }
}

/// Longest time of the sidecar's own programs at the start of a softirq.
const PROGRAMS: Duration = Duration::from_nanos(150);

/// A source of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    CpuClock,
    /// The kernel's CPU clock in the place of the cycle counter. It counts nanoseconds, and does not stop while a CPU is idle.
    Cycles,
}

/// Starts a sidecar, and waits until it samples at its configured frequency: the first snapshot sets it.
fn start() -> Sidecar {
    start_with(Source::CpuClock)
}

fn start_with(source: Source) -> Sidecar {
    let hertz = frequency();
    let frequencies = format!("idle_frequency: {hertz}, min_frequency: {hertz}, max_frequency: {hertz}");
    let settings = match source {
        Source::CpuClock => format!("network_functions: {{source: cpu_clock, {frequencies}}}"),
        Source::Cycles => format!("network_functions: {{source: cycles, {frequencies}}}, {SOFTWARE}"),
    };
    let sidecar = Sidecar::configured(&format!("signals: {{{settings}}}"));
    sidecar.snapshot();
    sidecar
}

/// Settings that replace the counters of the processor by events of the kernel, and read none of them by workload.
const SOFTWARE: &str = "processor: {enabled: false, events: software}";

fn growth(before: &Line, after: &Line, metric: &str, attributes: &[(&str, &str)]) -> f64 {
    after.total(metric, attributes) - before.total(metric, attributes)
}

#[test]
fn sampled_receive_time_is_the_exact_time() {
    let Some(_alone) = alone("sampled time") else { return };
    if virtual_machine().is_some() {
        return skip("sampled time: timers of an emulated CPU are late, and their samples belong to later work");
    }
    compare_with_exact_time(Source::CpuClock, Duration::from_secs(10), Load::start);
}

#[test]
fn sampled_receive_time_of_cpus_that_wait_for_each_other_is_the_exact_time() {
    let Some(_alone) = alone("sampled time of idle CPUs") else { return };
    if virtual_machine().is_some() {
        return skip("sampled time of idle CPUs: timers of an emulated CPU are late");
    }
    let [first, second, ..] = cpus()[..] else { return skip("sampled time of idle CPUs: there is only one CPU") };
    let exchange = |wire: &Wire, limit| Load::exchange(wire, limit, [first, second]);
    let (before, after) = compare_with_exact_time(Source::CpuClock, Duration::from_secs(10), exchange);
    let [estimated, busy] = [ESTIMATED, "undercurrent.cpu.time"].map(|metric| growth(&before, &after, metric, &[]));
    assert!(estimated < busy, "{estimated} s of network work in {busy} s of work");
}

#[test]
fn receive_time_sampled_by_a_counter_is_the_exact_time() {
    let Some(_alone) = alone("time sampled by a counter") else { return };
    if virtual_machine().is_some() {
        return skip("time sampled by a counter: timers of an emulated CPU are late");
    }
    compare_with_exact_time(Source::Cycles, Duration::from_secs(10), Load::start);
}

#[test]
#[ignore = "for a virtual machine that counts instructions; `cargo xtask test --only vm-icount` runs it"]
fn vm_icount_sampled_receive_time_is_the_exact_time() {
    let Some(_alone) = alone("sampled time") else { return };
    compare_with_exact_time(Source::CpuClock, Duration::from_secs(5), Load::start);
}

#[test]
#[ignore = "for a virtual machine that counts instructions; `cargo xtask test --only vm-icount` runs it"]
fn vm_icount_receive_time_sampled_by_a_counter_is_the_exact_time() {
    let Some(_alone) = alone("time sampled by a counter") else { return };
    compare_with_exact_time(Source::Cycles, Duration::from_secs(5), Load::start);
}

/// Loads the machine for a time, and compares the estimate with the exact time. Returns the snapshots before and after.
fn compare_with_exact_time(
    source: Source,
    load_time: Duration,
    load: impl FnOnce(&Wire, Duration) -> Load,
) -> (Line, Line) {
    let wire = Wire::best(Version::Ipv4);
    let sidecar = start_with(source);
    let load = load(&wire, patience(load_time * 2));
    // The price of a cycle needs half a second of busy time, and determines the period.
    thread::sleep(load_time / 5);
    sidecar.snapshot();
    let others = OtherPrograms::begin();
    let before = sidecar.snapshot();
    thread::sleep(load_time);
    load.stop();
    let after = sidecar.snapshot();
    let others = others.map_or(Duration::ZERO, |others| others.end(sidecar.pid())).as_secs_f64();
    drop(sidecar);
    let of = |metric| growth(&before, &after, metric, &[RECEIVE]);
    let (estimated, exact, samples) = (of(ESTIMATED), of(EXACT), of(SAMPLES));
    assert!(samples > 100.0, "too few samples: {samples}");
    for reason in ["stack_ring_full", "stack_unreadable"] {
        assert_eq!(after.total("undercurrent.lost", &[("undercurrent.reason", reason)]), 0.0, "{reason}");
    }
    // The number of samples within the time has a Poisson distribution.
    let deviation = (exact * estimated / samples).sqrt();
    // Programs at the start and the end of a softirq are part of its exact time, and no network work.
    let own = (started(&after) - started(&before)) * patience(PROGRAMS).as_secs_f64();
    let programs = own + others;
    let [with, without] = [exact, exact - programs].map(|truth| (estimated - truth) / deviation);
    eprintln!("programs beside the sidecar's ran for {others:.3} s");
    eprintln!(
        "{estimated:.3} s by {samples} samples, {exact:.3} s exactly, z = {with:.2}, {without:.2} without programs"
    );
    let truth = exact - programs - 4.0 * deviation..=exact + 4.0 * deviation;
    record(ESTIMATED, estimated, truth.clone());
    record(TIME, of(TIME), truth);
    record(SAMPLES, samples, exactly(estimated * f64::from(frequency())));
    record(VARIANCE, of(VARIANCE), variances(estimated, samples));
    for event in EVENTS.iter().map(|event| event.name) {
        let attributes = [(RECEIVE.0, event)];
        let (event_time, functions) = (after.total(ESTIMATED, &attributes), after.total(TIME, &attributes));
        assert!((event_time - functions).abs() < 1e-6, "{event}: {event_time} s, its functions {functions} s");
    }
    (before, after)
}

/// Returns the bounds of the variance of a sampled time. Each sample stands for at least one period. A timer is late where the
/// hypervisor stops the CPU. The variance is smallest if all samples are equally late, and largest if only one is late.
fn variances(time: f64, samples: f64) -> RangeInclusive<f64> {
    let period = 1.0 / f64::from(frequency());
    let late = (time - samples * period).max(0.0);
    let (equal, single) = (time * time / samples, samples * period * period + 2.0 * late * period + late * late);
    equal..=single.max(equal)
}

/// Sends datagrams for a while. No program reads them.
fn flood(wire: &Wire, lasting: Duration) {
    let from = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let to = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    from.connect(to.local_addr().unwrap()).unwrap();
    let start = std::time::Instant::now();
    while start.elapsed() < lasting {
        from.send(&[0x55; 64]).unwrap();
    }
}

/// Classes and events without a symbol on some kernels, with the reason.
const ABSENT: [(&str, &str); 3] = [
    ("bridge", "the module is not loaded"),
    ("conntrack", "the module is not loaded"),
    ("kernel_thread", "the kernel has no threaded NAPI (before 5.12), and no module with threads is loaded"),
];

#[test]
fn every_class_and_event_has_a_symbol() {
    let Some(_alone) = alone("symbols of classes") else { return };
    let names = network_functions::functions(&Settings::default());
    let text = Text::read(&names).unwrap();
    let has =
        |function: &&str| text.ranges.iter().any(|range| names[usize::try_from(range.function).unwrap()] == **function);
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let classes = network_functions::classes().map(|class| (class.name, class.functions));
    for (name, functions) in classes.chain(EVENTS.iter().map(|event| (event.name, event.functions))) {
        groups.entry(name).or_default().extend(functions);
    }
    for (name, functions) in groups {
        let (found, missing): (Vec<&str>, Vec<&str>) = functions.iter().partition(|function| has(function));
        eprintln!("{name}: {} of {} functions; without a symbol: {missing:?}", found.len(), functions.len());
        let reason = ABSENT.iter().find(|(absent, _)| *absent == name);
        assert!(!found.is_empty() || reason.is_some(), "{name} has no symbol on this kernel");
    }
    for class in network_functions::classes().filter(|class| !class.callers.is_empty()) {
        let is_absent = ABSENT.iter().any(|(absent, _)| *absent == class.name);
        assert!(is_absent || class.callers.iter().any(has), "{} has no caller", class.name);
    }
}

#[test]
fn a_flame_graph_shows_the_functions_of_the_traffic() {
    let Some(_alone) = alone("a flame graph") else { return };
    let wire = Wire::veth(Version::Ipv4);
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("graph.svg");
    let mut drawing = command(BINARY);
    drawing.args(["flamegraph", "--seconds", "3", "-o"]).arg(&picture).stderr(Stdio::piped());
    let drawing = drawing.spawn().unwrap();
    flood(&wire, patience(Duration::from_secs(3)));
    let output = drawing.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let (svg, folded) = (fs::read_to_string(&picture).unwrap(), fs::read_to_string(picture.with_extension("folded")));
    let folded = folded.unwrap();
    let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(said.split(' ').next().unwrap().parse::<u64>().unwrap(), counts.sum::<u64>(), "{said}");
    let is_received =
        |line: &&str| line.starts_with("receive_softirq;net_rx_action;") && line.contains(";ip_protocol_deliver_rcu;");
    assert!(folded.lines().any(|line| is_received(&line)), "{folded}");
    assert!(folded.lines().any(|line| line.starts_with("socket_send;udp_sendmsg;")), "{folded}");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("<title>udp_sendmsg: "), "{svg}");
}

/// A kernel parameter that returns to its value when it is dropped.
struct Parameter(&'static str, String);

impl Parameter {
    fn set(path: &'static str, value: &str) -> Self {
        let before = fs::read_to_string(path).unwrap();
        fs::write(path, value).unwrap();
        Self(path, before)
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        let _ = fs::write(self.0, &self.1);
    }
}

/// Returns the status of the signal, and its reasons with those of its hook, by `doctor` with a configuration.
fn status(configuration: &str) -> (String, String) {
    let file = file(configuration);
    status_by(command(BINARY).args(["doctor", "--json", "--config"]).arg(file.path()))
}

fn report(doctor: &mut Command) -> serde_json::Value {
    serde_json::from_slice(&doctor.output().unwrap().stdout).unwrap()
}

fn find<'a>(report: &'a serde_json::Value, list: &str, key: &str, name: &str) -> &'a serde_json::Value {
    report[list].as_array().unwrap().iter().find(|entry| entry[key] == name).unwrap()
}

fn status_by(doctor: &mut Command) -> (String, String) {
    let report = report(doctor);
    let (signal, hook) =
        (find(&report, "signals", "signal", "network_functions"), find(&report, "hooks", "hook", "cpu_sample"));
    (signal["status"].as_str().unwrap().to_owned(), format!("{} {}", signal["reasons"], hook["refusals"]))
}

#[test]
fn hidden_symbols_and_refused_events_affect_only_this_signal() {
    let Some(_alone) = alone("hidden symbols") else { return };
    let (usual, _) = status("{}");
    assert_eq!(usual, "healthy");
    {
        let _hidden = Parameter::set("/proc/sys/kernel/kptr_restrict", "2");
        let (status, reasons) = status("{}");
        assert!(status == "unavailable" && reasons.contains("kernel.kptr_restrict"), "{status}: {reasons}");
        // The other signals go on.
        let sidecar = Sidecar::start(often());
        let line = sidecar.snapshot();
        assert!(line.find(EXACT, &[]).next().is_some() && line.find(ESTIMATED, &[]).next().is_none());
    }
    let (status, reasons) = status("hooks: {avoid: [perf_event]}");
    assert!(status == "unavailable" && reasons.contains("cpu_sample"), "{status}: {reasons}");
}

#[test]
fn the_source_of_samples_is_chosen_by_the_machine_or_the_user() {
    let Some(_alone) = alone("the source of samples") else { return };
    // No test machine has a cycle counter.
    let (status, reasons) = status("signals: {network_functions: {source: cycles}}");
    assert!(status == "unavailable" && reasons.contains("cpu_sample"), "{status}: {reasons}");
    assert!(reasons.contains("no cycle counter") && reasons.contains("source: auto"), "{reasons}");
    assert_eq!(served(""), "cpu_clock");
    assert_eq!(served("network_functions: {source: cpu_clock}"), "cpu_clock");
    assert_eq!(served(SOFTWARE), "cpu_cycles");
    let clock = format!("{SOFTWARE}, network_functions: {{source: cpu_clock}}");
    assert_eq!(served(&clock), "cpu_clock");
}

/// Returns the alternate that samples the CPUs under these settings of the signals.
fn served(signals: &str) -> String {
    let file = file(&format!("signals: {{{signals}}}"));
    let report = report(command(BINARY).args(["doctor", "--json", "--config"]).arg(file.path()));
    assert_eq!(find(&report, "signals", "signal", "network_functions")["status"], "healthy");
    find(&report, "hooks", "hook", "cpu_sample")["by"].as_str().unwrap().to_owned()
}

/// Makes a command's process and its children fail to open perf events, as container runtimes and security modules do.
fn refuse_events(command: &mut Command) -> &mut Command {
    let refused = u32::try_from(libc::EACCES).unwrap();
    let filter = SeccompFilter::new(
        [(libc::SYS_perf_event_open, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(refused),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    // SAFETY: the child makes two system calls with memory that exists before the fork.
    unsafe { command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(io::Error::other)) }
}

#[test]
fn refused_perf_events_affect_only_this_signal() {
    let Some(_alone) = alone("refused perf events") else { return };
    let (status, reasons) = status_by(refuse_events(command(BINARY).args(["doctor", "--json"])));
    assert!(status == "unavailable" && reasons.contains("cpu_sample"), "{status}: {reasons}");
    assert!(reasons.contains("Permission denied"), "{reasons}");
    let mut refused = command(BINARY);
    refuse_events(&mut refused);
    let line = Sidecar::start_by(refused, often(), &[]).snapshot();
    assert!(line.find(EXACT, &[]).next().is_some() && line.find(ESTIMATED, &[]).next().is_none());
}

#[test]
fn stacks_beyond_the_ring_are_counted() {
    let Some(_alone) = alone("a full ring of stacks") else { return };
    let frequency = "idle_frequency: 10000, min_frequency: 10000, max_frequency: 10000";
    let sidecar = Sidecar::configured(&format!("signals: {{network_functions: {{{frequency}}}}}"));
    let full = |line: &Line| line.total("undercurrent.lost", &[("undercurrent.reason", "stack_ring_full")]);
    assert_eq!(full(&sidecar.snapshot()), 0.0);
    let wire = Wire::veth(Version::Ipv4);
    let _load = Load::start(&wire, patience(Duration::from_secs(30)));
    wait_for("stacks beyond the ring", patience(Duration::from_secs(20)), || {
        // A stopped worker does not read the ring.
        let process = rustix::process::Pid::from_raw(i32::try_from(sidecar.pid()).unwrap()).unwrap();
        rustix::process::kill_process(process, Signal::STOP).unwrap();
        thread::sleep(Duration::from_secs(2));
        rustix::process::kill_process(process, Signal::CONT).unwrap();
        (full(&sidecar.snapshot()) > 0.0).then_some(())
    });
}

#[test]
fn a_cpu_that_returns_is_sampled_again() {
    let Some(_alone) = alone("samples of an offline CPU") else { return };
    if virtual_machine().is_none() {
        return skip("samples of an offline CPU: tests take no CPU from a real machine");
    }
    [Source::CpuClock, Source::Cycles].into_iter().for_each(returned);
}

fn returned(source: Source) {
    let sidecar = start_with(source);
    let offline = match Offline::take(1) {
        Ok(offline) => offline,
        Err(error) => return skip(&format!("samples of an offline CPU: {error}")),
    };
    sidecar.snapshot();
    drop(offline);
    // The first snapshots find that the event of the CPU has stopped.
    (0..4).for_each(|_| drop(sidecar.snapshot()));
    let wire = Wire::veth(Version::Ipv4);
    let traffic = || {
        thread::scope(|scope| {
            scope.spawn(|| {
                on_one_cpu();
                flood(&wire, Duration::from_millis(300));
            });
        });
    };
    expect(&sidecar, &[UDP_SEND], &[UDP_RECEIVE], Version::Ipv4, traffic);
}
