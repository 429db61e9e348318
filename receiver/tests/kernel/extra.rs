//! Tests of extra layers: kernel functions that the user names. Unsuitable functions are reported with a reason.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;
use tempfile::TempDir;

use super::{
    latency::{Agreement, DURATION, LOST, assert_agrees, seen, served_by},
    support::{
        line::{Line, Value},
        sidecar::{BINARY, Sidecar, command},
        surroundings::{alone, often, skip, virtual_machine},
        talk::Talk,
        wire::{Version, Wire},
    },
};

/// Functions that every packet passes in this order; UDP datagrams skip the last one.
pub const DELIVER: &str = "ip_local_deliver";
const UDP: &str = "udp_queue_rcv_one_skb";
const TCP: &str = "tcp_v4_do_rcv";
/// A function of a module, on the transmit path.
const MODULE: &str = "veth_xmit";
/// A function without a packet argument, and functions that do not exist.
const NO_PACKET: &str = "sock_recvmsg";
const MISSPELT: &str = "ip_local_delivr";
const UNKNOWN: &str = "undercurrent_of_no_kernel";
const SIZE: usize = 200;

/// Returns a configuration with these layers.
pub fn configuration(functions: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undercurrent.yaml");
    fs::write(&file, format!("signals: {{latency: {{extra_layers: [{}]}}}}\n", functions.join(", "))).unwrap();
    (folder, file)
}

/// Returns the number of packets that a layer measured, and the sum of their durations.
fn measured(line: &Line, layer: &str) -> (u64, f64) {
    let attributes = [("undercurrent.network.layer", layer), ("network.type", "ipv4")];
    let histograms = line
        .find(DURATION, &attributes)
        .filter(|point| point.attributes.get("network.transport").is_none_or(|of| of == "udp"));
    histograms.fold((0, 0.0), |(count, sum), point| match &point.value {
        Value::Histogram(histogram) => (count + histogram.count, sum + histogram.sum.unwrap()),
        _ => (count, sum),
    })
}

/// Returns the measurements at a layer between two lines.
fn between(before: &Line, after: &Line, layer: &str) -> (u64, f64) {
    let ((count, sum), (counted, summed)) = (measured(after, layer), measured(before, layer));
    (count - counted, sum - summed)
}

/// Asserts that each datagram reaches every layer once, and each layer later than the one before.
fn datagrams(sidecar: &Sidecar, wire: &Wire, talk: &mut Talk, messages: usize) {
    let before = sidecar.snapshot();
    talk.udp(messages, SIZE);
    let after = sidecar.snapshot();
    let way = ["ip", DELIVER, "transport", UDP, "socket_enqueued"];
    let mut earlier = 0.0;
    // A cgroup program sees a packet after the socket lookup, which happens inside the UDP function.
    for layer in way.into_iter().filter(|layer| served_by(&after, layer).is_some_and(|by| by != "cgroup_skb")) {
        let (count, sum) = between(&before, &after, layer);
        eprintln!("{layer}: {count} datagrams took {sum} s");
        assert_eq!(count, talk.udp_reads, "{layer} on {:?}", wire.version);
        assert!(sum >= earlier, "{layer}: {sum} s together, and {earlier} s before it");
        earlier = sum;
    }
}

/// Asserts that every segment reaches the functions of the IP layer and of TCP.
fn segments(sidecar: &Sidecar, wire: &Wire, talk: &mut Talk, messages: usize) {
    let (before, counted) = (sidecar.snapshot(), wire.received());
    talk.tcp(messages, SIZE);
    let (counted, after) = (wire.settled() - counted, sidecar.snapshot());
    let since = |layer| seen(&after, layer, None, Version::Ipv4) - seen(&before, layer, None, Version::Ipv4);
    assert_agrees(DELIVER, since(DELIVER), counted.ip_of(Version::Ipv4), 0, Agreement::Exact);
    assert_agrees(TCP, since(TCP), counted.tcp, 0, Agreement::Exact);
    let (measured, _) = between(&before, &after, TCP);
    assert_eq!(measured as f64, since(TCP), "a segment at its socket has its receive timestamp");
}

#[test]
fn named_functions_are_layers() {
    let Some(_alone) = alone("layers that the user names") else { return };
    let (_folder, file) = configuration(&[DELIVER, TCP, UDP, NO_PACKET]);
    let sidecar = Sidecar::start_with(often(), &["--config", file.to_str().unwrap()], &[]);
    let line = sidecar.snapshot();
    for function in [DELIVER, TCP, UDP, NO_PACKET].into_iter().filter(|function| served_by(&line, function).is_none()) {
        let attributes = [("undercurrent.network.layer", function)];
        let points = [DURATION, LOST].map(|metric| line.find(metric, &attributes).count());
        assert_eq!(points, [0, 0], "nothing is attached to {function}");
    }
    assert!(served_by(&line, "transport").is_some(), "built-in layers stay available");
    if served_by(&line, DELIVER).is_none() {
        return skip("layers that the user names: this kernel refuses programs on functions");
    }
    let wire = Wire::veth(Version::Ipv4);
    let mut talk = Talk::open(&wire);
    let messages = if virtual_machine().is_some() { 300 } else { 3000 };
    datagrams(&sidecar, &wire, &mut talk, messages);
    segments(&sidecar, &wire, &mut talk, messages);
}

#[test]
fn a_kprobe_measures_the_same() {
    let Some(_alone) = alone("kprobes on functions that the user names") else { return };
    let functions = [DELIVER, UDP, TCP];
    let (_folder, file) = configuration(&functions);
    let sidecar = Sidecar::start_with(often(), &["--avoid", "fentry", "--config", file.to_str().unwrap()], &[]);
    let line = sidecar.snapshot();
    if virtual_machine().is_none() && served_by(&line, DELIVER).is_none() {
        return skip("kprobes on functions that the user names: this kernel is built without kprobes");
    }
    assert_eq!(functions.map(|function| served_by(&line, function)), ["kprobe"; 3].map(|by| Some(by.to_owned())));
    let wire = Wire::veth(Version::Ipv4);
    let mut talk = Talk::open(&wire);
    datagrams(&sidecar, &wire, &mut talk, 300);
    segments(&sidecar, &wire, &mut talk, 300);
}

#[test]
fn functions_of_modules_are_layers() {
    let Some(_alone) = alone("functions of modules as layers") else { return };
    // This loads the module, if the kernel has it.
    let wire = Wire::veth(Version::Ipv4);
    if !Path::new("/sys/kernel/btf/veth").exists() {
        return skip("functions of modules as layers: this kernel has veth built in, or no types of its modules");
    }
    let (_folder, file) = configuration(&[MODULE]);
    let sidecar = Sidecar::start_with(often(), &["--config", file.to_str().unwrap()], &[]);
    let mut talk = Talk::open(&wire);
    let (before, counted) = (sidecar.snapshot(), wire.received());
    assert_eq!(served_by(&before, MODULE).as_deref(), Some("kprobe"));
    talk.udp(100, SIZE);
    let (counted, after) = (wire.settled() - counted, sidecar.snapshot());
    let since = |line: &Line| seen(line, MODULE, None, Version::Ipv4);
    assert_agrees(MODULE, since(&after) - since(&before), counted.ip_of(Version::Ipv4), 0, Agreement::Exact);
    assert_eq!(measured(&after, MODULE).0, 0, "sent packets have no receive timestamp");
}

/// Returns the report of `doctor` about a hook.
fn hook<'a>(report: &'a Json, name: &str) -> &'a Json {
    let hooks = report["hooks"].as_array().unwrap();
    hooks.iter().find(|hook| hook["hook"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[test]
fn what_can_be_no_layer_says_why() {
    let Some(_alone) = alone("functions that can be no layer") else { return };
    let (_folder, file) = configuration(&[NO_PACKET, MISSPELT, UNKNOWN, DELIVER]);
    let run = |json: &[&str]| {
        let output = command(BINARY)
            .args(["doctor", "--level", "detailed", "--config", file.to_str().unwrap()])
            .args(json)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, report) = run(&["--json"]);
    assert_eq!(status, Some(1), "{report}");
    let report: Json = serde_json::from_str(&report).unwrap();
    let expected = [
        (NO_PACKET, "no argument of the function is a `struct sk_buff *`"),
        (MISSPELT, "did you mean `ip_local_deliver`?"),
        (UNKNOWN, "no function of that name"),
    ];
    let latency = report["signals"].as_array().unwrap().iter().find(|signal| signal["signal"] == "latency").unwrap();
    let (_, page) = run(&[]);
    for (function, why) in expected {
        let hook = hook(&report, function);
        assert_eq!(
            (&hook["status"], hook["refusals"].as_array().unwrap().len()),
            (&Json::from("unavailable"), 1),
            "{hook:#}"
        );
        let refusal = &hook["refusals"][0];
        assert_eq!(refusal["program"], function, "{refusal:#}");
        assert!(refusal["what"].as_str().unwrap().contains(why), "{refusal:#}");
        assert!(latency["reasons"].to_string().contains(&format!("hook {function} is unavailable (")), "{latency:#}");
        assert!(page.contains(function), "{page}");
    }
    // It is available if any function is, and is refused like the built-in layers otherwise.
    let (good, own) = (hook(&report, DELIVER), hook(&report, "ip"));
    assert_eq!((&good["status"], &good["by"]), (&own["status"], &own["by"]), "{good:#}");
    assert_eq!(latency["status"], "degraded", "{latency:#}");
}
