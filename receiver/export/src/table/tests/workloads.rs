//! Tests of tables with workloads.

use std::time::{Duration, Instant};

use super::*;
use crate::{
    telemetry::ResourceMetrics,
    testing::{BYTES, CPU_TIME, ENERGY, THREADS, resource_metrics},
};

/// A workload with its CPU time in milliseconds and its packets per second.
type Load = (Attributes, u32, u32);

fn container(name: &str, id: u32) -> Attributes {
    let digits = format!("{:08x}", id.wrapping_mul(0x9e37_79b1));
    Attributes::new()
        .with("host.name", "node-1")
        .with("container.id", digits.repeat(8))
        .with("service.instance.id", digits.repeat(4))
        .with("container.name", name.to_owned())
        .with("container.runtime", "docker")
}

fn unit(name: &'static str) -> Attributes {
    let path = format!("/system.slice/{name}");
    Attributes::new().with("undercurrent.workload.cgroup", path).with("undercurrent.workload.unit", name)
}

/// Returns the receive durations since the start: `packets` per second over TCP and IPv4, fewer over UDP, two over
/// IPv6.
fn durations(layers: &[&'static str], packets: u32, seconds: u64) -> Metric {
    let mut points = Vec::new();
    for (place, layer) in layers.iter().enumerate() {
        let transports = if *layer == "ip" { &[(None, 5)][..] } else { &[(Some("tcp"), 4), (Some("udp"), 1)] };
        for (transport, share) in transports {
            for network in ["ipv4", "ipv6"] {
                let mut attributes = Attributes::new().with("undercurrent.network.layer", *layer);
                if let Some(transport) = transport {
                    attributes.set("network.transport", *transport);
                }
                let count = u64::from(packets) * share * seconds;
                let buckets = if network == "ipv4" { vec![count, 2 * count, count / 4] } else { vec![1, 1, 0] };
                let data = Data::Histogram(histogram(-70 + 6 * place as i32, buckets, 0.001 * count as f64));
                points.push(point(attributes.with("network.type", network), data));
            }
        }
    }
    Metric { descriptor: &DURATION, points }
}

fn cpu_time(milliseconds: u32, seconds: u64) -> Metric {
    let spent = 0.125 + f64::from(milliseconds) / 1000.0 * seconds as f64;
    Metric { descriptor: &CPU_TIME, points: vec![point(Attributes::new(), Data::Double(spent))] }
}

fn workload((attributes, milliseconds, packets): &Load, seconds: u64) -> ResourceMetrics {
    let durations = durations(&["socket_enqueued", "socket_read"], *packets, seconds);
    resource_metrics(attributes.clone(), vec![durations, cpu_time(*milliseconds, seconds)])
}

/// Returns a snapshot some seconds after the start of all workloads.
fn snapshot(workloads: &[Load], seconds: u64) -> Snapshot {
    let event = |event: &'static str, each_second: f64| {
        let attributes = Attributes::new().with("undercurrent.network.event", event);
        point(attributes, Data::Double(each_second * seconds as f64))
    };
    let network = vec![event("receive_softirq", 0.031), event("transmit_softirq", 0.001)];
    let reason = Attributes::new().with("undercurrent.reason", "no_timestamp");
    let lost = Metric { descriptor: &LOST, points: vec![point(reason, Data::Integer(12))] };
    let network = Metric { descriptor: &CPU, points: network };
    let metrics = vec![network, durations(&["ip", "transport"], 900, seconds), cpu_time(55, seconds), lost];
    let mut snapshot = node(metrics, after(seconds));
    snapshot.resources.extend(workloads.iter().map(|load| workload(load, seconds)));
    snapshot
}

/// Renders the table of a two-second interval.
fn shown(workloads: &[Load], width: usize) -> String {
    render(Some(&snapshot(workloads, 30)), &snapshot(workloads, 32), plain(width))
}

/// Returns the first words of the rows in the first section, and the line below them.
fn ranking(table: &str) -> Vec<String> {
    let rows = table.lines().skip(4).take_while(|line| !line.is_empty());
    rows.map(|row| row.trim_start().split("  ").next().unwrap_or_default().to_owned()).collect()
}

fn few() -> Vec<Load> {
    let idle = (container("cache", 3), 0, 0);
    vec![(container("web", 1), 210, 400), (container("db", 2), 430, 150), idle, (unit("nginx.service"), 12, 3)]
}

#[test]
fn containers_and_a_unit_by_width() {
    insta::assert_snapshot!("few_at_60", shown(&few(), 60));
    insta::assert_snapshot!("few_at_80", shown(&few(), 80));
    insta::assert_snapshot!("few_at_120", shown(&few(), 120));
    insta::assert_snapshot!("few_at_200", shown(&few(), 200));
}

#[test]
fn forty_containers() {
    let forty: Vec<Load> =
        (0..40).map(|n| (container(&format!("worker-{n}"), n), n * n % 37 * 10, n * n % 41 * 20)).collect();
    insta::assert_snapshot!(shown(&forty, 120));
}

#[test]
fn long_names_and_the_node() {
    let pod = container("istio-proxy", 1)
        .with("k8s.namespace.name", "production-eu-west")
        .with("k8s.pod.name", "payments-api-7d9f8b6c5d-x2x4z")
        .with("k8s.container.name", "istio-proxy");
    let path = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-4242.scope";
    let scope = Attributes::new().with("undercurrent.workload.cgroup", path);
    let overflow = Attributes::new().with("otel.metric.overflow", true);
    let loads = [(pod, 300, 1000), (scope, 200, 10), (overflow, 100, 3)];
    let widths = [60, 80, 120].map(|width| shown(&loads, width));
    insta::assert_snapshot!(widths.join("\n\n"));
}

#[test]
fn duplicate_names() {
    let loads = [(container("web", 1), 20, 0), (container("web", 2), 430, 0), (container("db", 3), 1, 0)];
    let names = ranking(&shown(&loads, 80));
    assert_eq!(names, ["web (3c6ef3623c6e)", "(node)", "web (9e3779b19e37)", "db"]);
}

#[test]
fn ended_workloads_are_hidden() {
    let (previous, mut current) = (snapshot(&few(), 30), snapshot(&few(), 32));
    // The last totals of an ended workload stay until they are delivered.
    current.resources[2] = workload(&few()[1], 30);
    let idle = render(Some(&previous), &current, plain(120));
    assert_eq!(ranking(&idle), ["web", "(node)", "nginx.service"]);
    current.resources[2] = current.resources[2].expired();
    insta::assert_snapshot!(render(Some(&previous), &current, plain(120)));
    assert_eq!(render(Some(&previous), &current, plain(120)), idle);
}

#[test]
fn ended_metrics_have_no_column() {
    let metric = |descriptor, data| Metric { descriptor, points: vec![point(Attributes::new(), data)] };
    let metrics = vec![metric(&PROCESSED, Data::Integer(8)), metric(&DROPPED, Data::NoRecordedValue)];
    let table = render(None, &node(metrics, after(2)), plain(80));
    assert!(table.ends_with("  processed\n        4/s"), "{table}");
}

#[test]
fn idle_workloads_are_hidden() {
    let loads: Vec<Load> = few().into_iter().map(|(attributes, ..)| (attributes, 0, 0)).collect();
    assert_eq!(ranking(&shown(&loads, 80)), ["(node)", "no workload had any"]);
}

#[test]
fn the_overflow_workload_has_no_row() {
    let mut loads: Vec<Load> = (0..9).map(|n| (container(&format!("worker-{n}"), n), 900 - n, 0)).collect();
    loads.push((Attributes::new().with("otel.metric.overflow", true), 1, 0));
    let names = ranking(&shown(&loads, 80));
    assert_eq!(names[7..], ["worker-7", "(node)", "(others beyond the limit)", "and 1 more workload: 892 ms/s"]);
}

#[test]
fn the_others_are_summed_in_the_unit_of_the_first_column() {
    let rest = |descriptors: &[&'static Descriptor], data: fn(i64) -> Data| {
        let [previous, current] = [30, 32].map(|seconds| {
            let mut snapshot = node(vec![], after(seconds));
            snapshot.resources.extend((1..=10).map(|n| {
                let points = vec![point(Attributes::new(), data(n * seconds.cast_signed()))];
                let metric = |descriptor: &&'static Descriptor| Metric { descriptor, points: points.clone() };
                resource_metrics(container(&format!("worker-{n}"), n as u32), descriptors.iter().map(metric).collect())
            }));
            snapshot
        });
        ranking(&render(Some(&previous), &current, plain(80))).pop()
    };
    let said = |text: &str| Some(format!("and 2 more workloads: {text}"));
    assert_eq!(rest(&[&CPU_TIME], |n| Data::Double(n as f64 / 1000.0)), said("3.00 ms/s"));
    assert_eq!(rest(&[&THREADS], Data::Integer), said("96"));
    assert_eq!(rest(&[&PROCESSED, &DROPPED], Data::Integer), said("processed 3/s"));
    let packets = |n: i64| Data::Histogram(histogram(-70, vec![n.cast_unsigned()], n as f64));
    assert_eq!(rest(&[&WAIT], packets), said("3/s"));
}

#[test]
fn a_later_name_does_not_change_values() {
    let load = |attributes| [(attributes, 210, 400)];
    let unnamed = container("", 1);
    let table = render(Some(&snapshot(&load(unnamed), 30)), &snapshot(&load(container("web", 1)), 32), plain(80));
    assert_eq!(table, shown(&load(container("web", 1)), 80));
}

#[test]
fn control_characters_are_escaped() {
    let evil = container("web\x1b[2J\u{202e}", 1);
    let mut snapshots = [30, 32].map(|seconds| snapshot(&[(evil.clone(), 210, 1)], seconds));
    for snapshot in &mut snapshots {
        let node = snapshot.resources.remove(0);
        let attributes = node.resource.attributes.clone().with("host.name", "node\x07");
        snapshot.resources.insert(0, resource_metrics(attributes, node.metrics));
    }
    let table = render(Some(&snapshots[0]), &snapshots[1], plain(80));
    assert!(!table.chars().any(|c| c != '\n' && c.is_control()), "{table:?}");
    assert!(table.contains("  node\\u{7}  "), "{table}");
    assert_eq!(ranking(&table)[0], "web\\u{1b}[2J\\u{202e}");
}

#[test]
fn hundreds_of_workloads_are_rendered_fast_and_in_few_lines() {
    let loads: Vec<Load> = (0..256).map(|n| (container(&format!("worker-{n}"), n), n, n)).collect();
    let snapshot = |seconds| {
        let mut snapshot = snapshot(&loads, seconds);
        for (resource, (_, _, packets)) in snapshot.resources[1..].iter_mut().zip(&loads) {
            resource.metrics[0] = durations(&["transport", "socket_enqueued", "socket_read"], *packets, seconds);
            let datas = resource.metrics[0].points.iter_mut().map(|point| &mut point.data);
            for data in datas {
                let Data::Histogram(histogram) = data else { continue };
                histogram.buckets.extend((0..60).map(|n| n * seconds));
            }
        }
        snapshot
    };
    let (previous, current) = (snapshot(30), snapshot(32));
    let draw = || {
        let began = Instant::now();
        let lines = render(Some(&previous), &current, plain(120)).lines().count();
        (began.elapsed(), lines)
    };
    let (fastest, lines) = [draw(), draw(), draw()].into_iter().min().unwrap_or_default();
    // An optimized build takes 3 ms.
    assert!(fastest < Duration::from_millis(500), "{fastest:?}");
    assert!(lines < 150, "{lines} lines");
}

/// Returns energies in joules, by use.
fn energy(uses: &[(&'static str, f64)]) -> Metric {
    let of = |(used, joules): &(&'static str, f64)| {
        point(Attributes::new().with("undercurrent.energy.use", *used), Data::Double(*joules))
    };
    Metric { descriptor: &ENERGY, points: uses.iter().map(of).collect() }
}

#[test]
fn power_is_beside_cpu_time_and_latency() {
    let snapshot = |seconds: u64| {
        let mut snapshot = node(vec![energy(&[("idle", 5.0 * seconds as f64)]), cpu_time(60, seconds)], after(seconds));
        for (n, (name, network, compute)) in [("web", 2.5, 7.5), ("batch", 0.0, 31.0)].into_iter().enumerate() {
            let uses = [("network", network * seconds as f64), ("compute", compute * seconds as f64)];
            let load = (container(name, n as u32), 400 * (n as u32 + 1), if network > 0.0 { 100 } else { 0 });
            let mut workload = workload(&load, seconds);
            if network == 0.0 {
                workload.metrics.remove(0);
            } else {
                let bytes = Data::Integer(4_000_000 * i64::try_from(seconds).expect("a few seconds"));
                workload.metrics.push(Metric { descriptor: &BYTES, points: vec![point(Attributes::new(), bytes)] });
            }
            workload.metrics.push(energy(if network > 0.0 { &uses } else { &uses[1..] }));
            snapshot.resources.push(workload);
        }
        snapshot
    };
    let table = render(Some(&snapshot(2)), &snapshot(4), plain(100));
    let section: Vec<&str> =
        table.lines().skip_while(|line| !line.starts_with("energy")).take_while(|line| !line.is_empty()).collect();
    // 10 W of `web` for 4 MB a second.
    assert!(section.iter().any(|row| row.contains("web") && row.contains("2.50kJ")), "{section:#?}");
    insta::assert_snapshot!(section.join("\n"));
}
