use std::path::PathBuf;

use super::*;
use crate::{
    doctor::{AbsentField, Memory, SecurityProfile},
    kernel::{hooks::SOCKET_ENQUEUED, host::Cgroup, plan::Outcome},
    parts::{Part, USER},
    signals::SignalStatus,
    sysfs::Meters,
};

fn host() -> Host {
    Host {
        release: "6.12.117+deb12-cloud-amd64".to_owned(),
        btf: true,
        lockdown: Some("integrity".to_owned()),
        missing_capabilities: Vec::new(),
        cgroup: Cgroup::V2,
        cgroup_root: Some(PathBuf::from("/sys/fs/cgroup")),
        hierarchy: None,
        clocksource: Some("tsc".to_owned()),
        cpus: 2,
        preempt_rt: false,
        threaded_napi: Vec::new(),
        meters: Meters::default(),
    }
}

fn hook(hook: &'static str, by: &'static str, programs: &[(&'static str, u64)]) -> HookReport {
    let outcome = Outcome {
        hook: hook.into(),
        status: Status::Healthy,
        by: Some(by.into()),
        programs: programs.iter().map(|(program, _)| (*program).into()).collect(),
        leaves_out: None,
        refusals: Vec::new(),
    };
    HookReport { outcome, runs: Some(programs.iter().map(|(program, runs)| ((*program).into(), *runs)).collect()) }
}

fn signal(signal: &'static str, status: Status, reasons: &[&str]) -> SignalStatus {
    SignalStatus { signal, status, enabled: true, reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect() }
}

fn part(part: Part, user: u32, capabilities: &[&str]) -> Confinement {
    let capabilities = capabilities.iter().map(|&capability| capability.to_owned()).collect();
    Confinement { part, user, capabilities, files: FileAccess::UserOnly }
}

fn whole() -> Report {
    Report {
        version: "1.2.3",
        verdict: Verdict::Healthy,
        reason: None,
        no_probe: None,
        host: Some(host()),
        lacks: Vec::new(),
        grant: None,
        security_profile: None,
        collectors: Vec::new(),
        parts: vec![
            part(Part::Loader, 0, &["CAP_BPF", "CAP_PERFMON"]),
            Confinement { files: FileAccess::Landlock, ..part(Part::Worker, USER, &[]) },
        ],
        absent_fields: Vec::new(),
        hooks: vec![
            hook("softirq_entry", "tracepoint", &[("softirq_entry", 90)]),
            hook("ip", "fentry", &[("ip_rcv_core", 20), ("ip6_rcv_core", 20)]),
        ],
        memory: Memory { maps: vec![("LATENCY", 58_464), ("SOFTIRQ", 8_448)], planned: 66_912, limit: 64 << 20 },
        cpu_time: Some(
            "elapsed minus idle time, with interrupts; with stolen time at least `cpuacct.usage`".to_owned(),
        ),
        signals: vec![signal("network_cpu", Status::Healthy, &[]), signal("latency", Status::Healthy, &[])],
    }
}

#[test]
fn a_healthy_machine() {
    insta::assert_snapshot!(page(&whole(), false));
}

#[test]
fn notes_of_hooks_are_wrapped() {
    let mut report = whole();
    report.hooks[1].outcome.leaves_out = Some("small datagrams, ".repeat(10).into());
    let page = page(&report, false);
    assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
}

#[test]
fn maps_are_listed_on_request() {
    let page = page(&whole(), true);
    assert!(
        page.contains("\nmemory      65.3 KiB of 64.0 MiB for 2 maps: LATENCY 57.1 KiB, SOFTIRQ 8.2 KiB\n"),
        "{page}"
    );
}

#[test]
fn a_degraded_machine() {
    let refusal = |program: &'static str| Refusal {
        is_curable: false,
        ..Refusal::new(
            program,
            "load: Operation not permitted (os error 1)",
            "allow this kind of program in the security policy of this host",
        )
    };
    let mut report = whole();
    report.verdict = Verdict::Degraded;
    report.absent_fields = vec![AbsentField {
        field: "sk_buff.tstamp_type or sk_buff.mono_delivery_time".to_owned(),
        reason: "sk_buff.tstamp_type: no member tstamp_type".to_owned(),
        cost: None,
    }];
    report.no_probe = Some(
        "cannot send over loopback: Network is unreachable (os error 101); bring it up with `ip link set lo up`"
            .to_owned(),
    );
    let programs = ["ip_rcv_core", "ip6_rcv_core"];
    report.hooks[1].outcome = Outcome {
        hook: "ip".into(),
        status: Status::Unavailable,
        by: None,
        programs: Vec::new(),
        leaves_out: None,
        refusals: programs.map(refusal).to_vec(),
    };
    report.hooks[1].runs = Some(Vec::new());
    let mut enqueued = hook("socket_enqueued", "tracepoint", &[("sk_data_ready", 40)]);
    enqueued.outcome.status = Status::Degraded;
    let without = SOCKET_ENQUEUED
        .alternates
        .iter()
        .find_map(|alternate| alternate.leaves_out)
        .expect("an alternate that misses packets");
    enqueued.outcome.leaves_out = Some(without.into());
    enqueued.outcome.refusals = ["tcp_queue_rcv", "udp_enqueue_schedule_skb"].map(refusal).to_vec();
    report.hooks.push(enqueued);
    report.hooks.push(hook("socket_read", "fentry", &[("tcp_recv_timestamp", 3), ("skb_consume_udp", 0)]));
    let misses = format!("socket_enqueued does not see {without}");
    report.signals[1] = signal("latency", Status::Degraded, &["hook ip is unavailable", &misses]);
    report.hooks.push(hook("cpu_sample", "cpu_clock", &[("sample_clock", 5)]));
    report.hooks.last_mut().expect("a hook").outcome.refusals =
        vec![Refusal::new("sample_cycles", "attach: Device or resource busy", "report it")];
    let off = signal("softnet", Status::Unavailable, &["switched off by the configuration"]);
    report.signals.push(SignalStatus { enabled: false, ..off });
    insta::assert_snapshot!(page(&report, false));
}

#[test]
fn a_long_name_of_a_signal_has_its_own_column() {
    let mut report = whole();
    report.signals.push(signal("a_signal_with_a_long_name", Status::Degraded, &["a reason"]));
    assert!(
        page(&report, false).contains("\na_signal_with_a_long_name  degraded     a reason\n"),
        "{}",
        page(&report, false)
    );
}

#[test]
fn collectors_and_profiles_are_reported() {
    let mut report = whole();
    report.verdict = Verdict::Degraded;
    let collector = |items: &str, origin: Option<&str>, problem: Option<&str>| Collector {
        items: items.to_owned(),
        endpoint: "http://collector:4317/".to_owned(),
        origin: origin.map(str::to_owned),
        problem: problem.map(str::to_owned),
    };
    let problem = "unavailable: tcp connect error: Connection refused (os error 111). Is a collector listening there?";
    report.collectors =
        vec![collector("metrics", Some("OTEL_EXPORTER_OTLP_ENDPOINT"), None), collector("spans", None, Some(problem))];
    let profile = SecurityProfile { name: "docker-default (enforce)".to_owned(), forbids_inspection: true };
    report.security_profile = Some(profile);
    insta::assert_snapshot!(page(&report, false));
}

#[test]
fn an_unsupported_machine() {
    let mut report = whole();
    report.verdict = Verdict::Unusable;
    let lack = "CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN) to load tracing programs";
    report.reason = Some(format!("not root, and lacking {lack}: run as root, or grant CAP_PERFMON CAP_BPF"));
    report.lacks = vec![format!("{lack}: nothing is measured")];
    report.grant = Some("grant CAP_PERFMON CAP_BPF (systemd: `AmbientCapabilities=CAP_PERFMON CAP_BPF`)".to_owned());
    report.cpu_time = None;
    report.hooks.clear();
    report.signals.clear();
    insta::assert_snapshot!(page(&report, false));
}
