//! `undercurrent doctor`.

use std::{
    fs, io,
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Output, Stdio},
    thread,
    time::Duration,
};

use landlock::{AccessFs, Ruleset, RulesetAttr as _, RulesetCreated};
use serde_json::Value;
use undercurrent::parts::FileAccess;

use super::support::{
    attached::{Attached, held},
    collector::Collector,
    processes::family,
    sidecar::{BINARY, command, file},
    surroundings::{alone, arguments, function, skip, virtual_machine},
};

/// The result of a hook: name, status and alternate.
type Hook = (String, String, Option<String>);

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn hooks(report: &Value) -> Vec<Hook> {
    let text = |hook: &Value, key: &str| hook[key].as_str().map(str::to_owned);
    let hooks = report["hooks"].as_array().unwrap().iter();
    hooks.map(|hook| (text(hook, "hook").unwrap(), text(hook, "status").unwrap(), text(hook, "by"))).collect()
}

/// The hooks that the probe's packets do not trigger, or not within its time.
const QUIET: [&str; 6] = ["cgroup_change", "forward", "tcp_failure", "tcp_retransmit", "drop", "cpu_tick"];

/// Returns true if the kernel reports reasons of drops.
fn explains_drops() -> bool {
    arguments("kfree_skb") > 2
}

/// Returns true if every function of the listeners' hook can be attached. Linux 6.1 refuses fentry for two of them.
fn sees_listeners(found: &[Hook]) -> bool {
    found.iter().any(|(hook, status, _)| hook == "tcp_listen" && status == "healthy")
}

/// Returns the hooks of attribution and of packet events. If reads are measured, the reader's hook is served by
/// `socket_read`; otherwise by a tracepoint, or by the enclosing function on kernels without the tracepoint.
fn others(report: &Value, found: &[Hook]) -> Vec<Hook> {
    let served = |hook: &str, by: &str| (hook.to_owned(), "healthy".to_owned(), Some(by.to_owned()));
    let by = |hook, by: &str| found.iter().any(|(name, _, found)| name == hook && found.as_deref() == Some(by));
    let reader = match () {
        () if by("socket_read", "fentry") => "socket_read",
        () if by("socket_reader", "tracepoint") => "tracepoint",
        () => "fexit",
    };
    let mut others = vec![served("socket_reader", reader)];
    let fentry = by("socket_read", "fentry");
    others.extend(
        [("forward", fentry), ("transmit_send", fentry), ("tcp_listen", fentry && sees_listeners(found))].map(
            |(hook, is_served)| {
                if is_served { served(hook, "fentry") } else { (hook.to_owned(), "unavailable".to_owned(), None) }
            },
        ),
    );
    others.extend(
        ["cgroup_change", "tcp_failure", "tcp_retransmit", "transmit_queue", "transmit_start", "transmit_end"]
            .map(|hook| served(hook, "tracepoint")),
    );
    others.push(served("receiver", if by("transport", "cgroup_skb") { "transport" } else { "cgroup_skb" }));
    others.push(served("cpu_sample", "cpu_clock"));
    let has_packet = by("transport", "cgroup_skb") && function("bpf_cast_to_kern_ctx");
    others.extend(["host", "tcp_segment"].map(|hook| {
        if has_packet { served(hook, "transport") } else { (hook.to_owned(), "unavailable".to_owned(), None) }
    }));
    let status = if explains_drops() { "healthy" } else { "degraded" };
    others.push(("drop".to_owned(), status.to_owned(), Some("tracepoint".to_owned())));
    if report["host"]["hierarchy"]["version"] == "v1" {
        others.push(served("socket_creator", "cgroup_sock"));
    }
    others
}

fn expected(fentry: bool) -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    let softirqs = ["softirq_raise", "softirq_entry", "softirq_exit"].map(|hook| (hook, "healthy", Some("tracepoint")));
    let layers = if fentry {
        let by = |hook| if hook == "transport" { "cgroup_skb" } else { "fentry" };
        ["ip", "transport", "socket_enqueued", "socket_read"].map(|hook| (hook, "healthy", Some(by(hook))))
    } else {
        [
            ("ip", "unavailable", None),
            ("transport", "healthy", Some("cgroup_skb")),
            if arguments("sk_data_ready") > 0 {
                ("socket_enqueued", "degraded", Some("tracepoint"))
            } else {
                ("socket_enqueued", "unavailable", None)
            },
            ("socket_read", "degraded", Some("tracepoint")),
        ]
    };
    softirqs.into_iter().chain(layers).collect()
}

#[test]
fn every_hook_is_served_as_this_kernel_allows_and_fires() {
    let Some(_alone) = alone("doctor") else { return };
    let output = command(BINARY).args(["doctor", "--json", "--probe", "--level", "detailed"]).output().unwrap();
    let report = report(&output);
    let mut found = hooks(&report);
    // The kernels of the virtual machines have BPF trampolines. On other machines, the hook without other
    // alternates shows whether fentry works.
    let fentry =
        virtual_machine().is_some() || found.iter().any(|(hook, status, _)| hook == "ip" && status == "healthy");
    let mut expected: Vec<Hook> = expected(fentry)
        .into_iter()
        .map(|(hook, status, by)| (hook.to_owned(), status.to_owned(), by.map(str::to_owned)))
        .collect();
    expected.extend(others(&report, &found));
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{report:#}");
    // With PREEMPT_RT, the time of softirqs includes other tasks.
    let is_whole = fentry && explains_drops() && sees_listeners(&found) && !Path::new("/sys/kernel/realtime").exists();
    let (status, verdict) = if is_whole { (0, "healthy") } else { (1, "degraded") };
    assert_eq!((output.status.code(), report["verdict"].as_str()), (Some(status), Some(verdict)), "{report:#}");
    for hook in report["hooks"].as_array().unwrap() {
        assert_explained(hook);
    }
}

/// Settings that need most of the code that the default leaves out.
const COMPLETE: &str = "packets: {filter: {ports: [80], min_receive_queue: 1}, group: {by: [interface, network_namespace]}}\n\
    signals: {network_cpu: {exact: all}, processor: {events: software}, \
    slow_packets: {payload: http2, reader_states: true}}\n";

/// The programs that the default leaves out run too.
#[test]
fn every_program_of_the_complete_settings_fires() {
    let Some(_alone) = alone("doctor with complete settings") else { return };
    let file = file(COMPLETE);
    let arguments = ["doctor", "--json", "--probe", "--level", "detailed", "--config", file.path().to_str().unwrap()];
    let report = report(&command(BINARY).args(arguments).output().unwrap());
    let hooks = report["hooks"].as_array().unwrap();
    let names: Vec<&str> = hooks.iter().map(|hook| hook["hook"].as_str().unwrap()).collect();
    assert!(["sched_switch", "sched_waking", "cpu_tick"].iter().all(|hook| names.contains(hook)), "{names:?}");
    hooks.iter().for_each(assert_explained);
}

/// Settings, with the kinds of hooks to avoid.
const SETTINGS: [(&str, &str); 3] = [("", "fentry, kprobe"), (COMPLETE, ""), (COMPLETE, "fentry, kprobe")];

/// Each kernel has another verifier, and the code of a program differs by the settings and by the kind of its hook.
#[test]
fn the_verifier_accepts_every_program() {
    let Some(_alone) = alone("the verifier") else { return };
    let mut seen = 0;
    let normal = [("normal", SETTINGS[0].0, ""), ("normal", SETTINGS[0].0, "fentry, kprobe")];
    let peers = [("normal", "signals: {tcp_peers: {enabled: true}}\n", "")];
    let detailed = SETTINGS.map(|(settings, avoided)| ("detailed", settings, avoided));
    for (level, settings, avoided) in normal.into_iter().chain(peers).chain(detailed) {
        let file = file(&format!("{settings}hooks: {{avoid: [{avoided}]}}\n"));
        let arguments = ["doctor", "--json", "--level", level, "--config", file.path().to_str().unwrap()];
        let report = report(&command(BINARY).args(arguments).output().unwrap());
        for hook in report["hooks"].as_array().unwrap() {
            let what = |refusal: &Value| refusal["what"].as_str().unwrap().to_owned();
            let refusals: Vec<_> = hook["refusals"].as_array().unwrap().iter().map(what).collect();
            let is_rejected = refusals.iter().any(|what| what.contains("the verifier rejected"));
            assert!(!is_rejected, "{settings}, without {avoided}: {hook:#}");
            seen += 1;
        }
    }
    assert!(seen > 45, "the reports have {seen} hooks");
}

#[test]
fn only_the_loader_attaches_programs() {
    let Some(_alone) = alone("the processes of doctor") else { return };
    let mut doctor = command(BINARY)
        .args(["doctor", "--json", "--probe", "--level", "detailed"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = doctor.stdout.take().unwrap();
    // The report is longer than a pipe, so doctor could not end without a reader.
    let output = thread::spawn(move || io::read_to_string(&mut output).unwrap());
    let (mut by_doctor, mut by_parts) = (Attached::default(), Attached::default());
    while doctor.try_wait().unwrap().is_none() {
        by_doctor.extend(held(doctor.id()));
        family(doctor.id()).into_iter().skip(1).for_each(|part| by_parts.extend(held(part)));
    }
    let report: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
    let programs = |hook: &Value| hook["runs"].as_array().unwrap().len();
    let reported: usize = report["hooks"].as_array().unwrap().iter().map(programs).sum();
    assert!(reported > 0 && by_parts.programs.len() >= reported, "{reported} programs in {report:#}, {by_parts:?}");
    assert_eq!(by_doctor, Attached::default());
}

/// Asserts that attached hooks fired, and that each other hook has a reason and a remedy.
fn assert_explained(hook: &Value) {
    let runs = hook["runs"].as_array().unwrap();
    let fired = runs.iter().all(|run| run[1].as_u64() > Some(0));
    assert!(fired || QUIET.iter().any(|quiet| hook["hook"] == *quiet), "a program did not fire: {hook:#}");
    if hook["status"] == "healthy" {
        // A hook that another hook's programs serve has no programs.
        assert_eq!(runs.is_empty(), hook["by"] == "socket_read" || hook["by"] == "transport", "{hook:#}");
        return;
    }
    let refusals = hook["refusals"].as_array().unwrap();
    assert!(!refusals.is_empty(), "nothing was refused: {hook:#}");
    for refusal in refusals {
        assert!(
            ["what", "cure"].iter().all(|key| refusal[key].as_str().is_some_and(|text| !text.is_empty())),
            "{hook:#}"
        );
    }
}

#[test]
fn without_privileges_it_names_what_is_missing() {
    let Some(_alone) = alone("doctor without privileges") else { return };
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Other users may have no access to the build folder.
    let binary = folder.path().join("undercurrent");
    fs::copy(BINARY, &binary).unwrap();
    let run = |arguments: &[&str]| {
        command(&binary).args(arguments).current_dir("/").uid(NOBODY).gid(NOBODY).output().unwrap()
    };

    let output = run(&["doctor", "--json", "--probe", "--level", "detailed"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report = report(&output);
    assert_eq!(report["verdict"], "unusable");
    let lacks = report["lacks"].to_string();
    let reason = report["reason"].as_str().unwrap();
    let output = run(&["run", "--output", "json", "--duration", "1s"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let refusal = String::from_utf8_lossy(&output.stderr);
    for text in [lacks.as_str(), reason, &refusal] {
        assert!(["CAP_BPF", "CAP_PERFMON"].iter().all(|capability| text.contains(capability)), "{text}");
    }
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn collectors_are_tried() {
    let Some(_alone) = alone("doctor with collectors") else { return };
    let collector = Collector::start(Duration::ZERO, 0);
    // No program listens at the port of a dropped listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut doctor = command(BINARY);
    doctor.env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", collector.endpoint());
    doctor.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{closed}"));
    doctor.env("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", collector.endpoint());
    let report = report(&doctor.args(["doctor", "--json", "--level", "detailed"]).output().unwrap());
    let [metrics, spans, logs] = report["collectors"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&metrics["items"], &metrics["problem"]), (&Value::from("metrics"), &Value::Null), "{metrics:#}");
    assert_eq!(metrics["origin"], "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
    assert_eq!(spans["items"], "spans");
    assert!(spans["problem"].as_str().unwrap().contains("unavailable"), "{spans:#}");
    assert_eq!((&logs["items"], &logs["problem"]), (&Value::from("logs"), &Value::Null), "{logs:#}");
}

#[test]
fn avoided_kinds_of_programs_are_not_tried() {
    let Some(_alone) = alone("doctor without kinds of programs") else { return };
    let avoid = ["fentry", "kprobe", "tracepoint"].map(|kind| ["--avoid", kind]);
    let output =
        command(BINARY).args(["doctor", "--json", "--level", "detailed"]).args(avoid.as_flattened()).output().unwrap();
    let report = report(&output);
    let by = hooks(&report).into_iter().filter_map(|(_, _, by)| by).collect::<Vec<_>>();
    assert!(!by.is_empty(), "{report:#}");
    let has_kind = |by: &String| ["fentry", "fexit", "kprobe", "tracepoint"].iter().any(|kind| by.contains(kind));
    assert!(!by.iter().any(has_kind), "{by:?}");
}

/// The kernel's limit of nested Landlock rulesets (`LANDLOCK_MAX_NUM_LAYERS`).
const LAYERS: usize = 16;

#[test]
fn a_worker_that_cannot_be_confined_is_reported() {
    const TEST: &str = "doctor with a worker that cannot be confined";
    let Some(_alone) = alone(TEST) else { return };
    if FileAccess::supported() != FileAccess::Landlock {
        return skip(&format!("{TEST}: this kernel has no Landlock"));
    }
    let run = |arguments: &[&str]| {
        let mut command = command(BINARY);
        // SAFETY: the closure calls the kernel and the allocator. glibc resets the allocator's locks after a fork.
        unsafe { command.pre_exec(|| (0..LAYERS).try_for_each(|_| restrict())) };
        command.args(arguments).output().unwrap()
    };
    let output = run(&["doctor", "--json", "--level", "detailed"]);
    let report = report(&output);
    assert_eq!((output.status.code(), &report["verdict"]), (Some(3), &Value::from("unusable")), "{report:#}");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("cannot drop files"), "{reason}");
    let output = run(&["run", "--output", "json", "--duration", "1s"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(reason), "{output:?}");
}

/// Forbids this process to create block devices, and adds one Landlock ruleset.
fn restrict() -> io::Result<()> {
    let ruleset = Ruleset::default().handle_access(AccessFs::MakeBlock).and_then(Ruleset::create);
    ruleset.and_then(RulesetCreated::restrict_self).map(drop).map_err(io::Error::other)
}
