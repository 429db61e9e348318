use super::*;
use crate::{
    telemetry::{Attributes, Data, Metric},
    testing::{CPU, CPU_TIME, EXPORTED, HOOK, LOST, PROCESSED, after, node, point, resource_metrics},
};

fn view(previous: Option<&Snapshot>, current: &Snapshot) -> View {
    View::new(previous, current, &Recent::default(), NonZeroUsize::new(2))
}

#[test]
fn cells_keep_numbers_and_units() {
    let busy = |seconds: f64, time| {
        let attributes = Attributes::new().with("undercurrent.network.event", "receive_softirq");
        node(vec![Metric { descriptor: &CPU, points: vec![point(attributes, Data::Double(seconds))] }], time)
    };
    let view = view(Some(&busy(1.0, after(2))), &busy(1.5, after(4)));
    assert_eq!((view.seconds, view.host.as_deref(), view.time), (Some(2.0), Some("node-1"), after(4)));
    let [section] = view.sections.as_slice() else { panic!("{:?}", view.sections) };
    let headings: Vec<&str> = section.columns.iter().map(|column| column.heading.as_str()).collect();
    assert_eq!(headings, ["event", "ms/s", "of one CPU", "of the node"]);
    let number = |value, unit| Cell::Number(Quantity { value, unit });
    let cells = vec![
        Cell::Label("receive_softirq".to_owned()),
        number(250.0, Unit::None),
        number(0.25, Unit::Share),
        number(0.125, Unit::Share),
    ];
    assert_eq!(section.rows, [Row { depth: 0, cells }]);
}

#[test]
fn notices_have_a_severity_and_numbers() {
    let snapshot = |lost: i64, time| {
        let one = |key: &'static str, value: &'static str, data| point(Attributes::new().with(key, value), data);
        let reason = one("undercurrent.reason", "no_timestamp", Data::Integer(lost));
        let hook = one("undercurrent.hook.state", "degraded", Data::Integer(1));
        let failed = one("error.type", "no_space", Data::Integer(3));
        let metrics = [(&LOST, reason), (&HOOK, hook), (&EXPORTED, failed)];
        node(metrics.map(|(descriptor, point)| Metric { descriptor, points: vec![point] }).into(), time)
    };
    let view = view(Some(&snapshot(10, after(2))), &snapshot(16, after(4)));
    let severities: Vec<_> = view.notices.iter().map(|notice| (notice.title.as_str(), notice.severity)).collect();
    let expected = [
        ("lost", Severity::Warning),
        ("hook.status", Severity::Warning),
        ("otel.sdk.exporter.metric_data_point.exported", Severity::Failure),
    ];
    assert_eq!(severities, expected);
    let remark = &view.notices[0].remarks[0];
    assert_eq!((remark.total.map(|total| total.value), remark.rate.map(|rate| rate.value)), (Some(16.0), Some(3.0)));
    let texts = view.notices.iter().map(|notice| notice.remarks[0].to_string());
    assert_eq!(texts.collect::<Vec<_>>(), ["no_timestamp 16 (3/s)", "degraded", "no_space 3"]);
}

#[test]
fn losses_of_workloads_add_up() {
    let snapshot = |counts: [i64; 2], time| {
        let lost = |reason: &'static str, count| {
            let attributes = Attributes::new().with("undercurrent.reason", reason);
            Metric { descriptor: &LOST, points: vec![point(attributes, Data::Integer(count))] }
        };
        let mut snapshot = node(vec![lost("ring_full", 4)], time);
        let workloads = ["a", "b"].into_iter().zip(counts);
        let workload = |(name, count)| {
            resource_metrics(Attributes::new().with("service.name", name), vec![lost("over_budget", count)])
        };
        snapshot.resources.extend(workloads.map(workload));
        snapshot
    };
    let view = view(Some(&snapshot([10, 20], after(2))), &snapshot([16, 22], after(4)));
    let texts = view.notices[0].remarks.iter().map(ToString::to_string);
    assert_eq!(texts.collect::<Vec<_>>(), ["ring_full 4", "over_budget 38 (4/s)"]);
}

/// Returns a node and twelve workloads, which have received a growing number of packets.
fn loaded(factor: u64) -> Snapshot {
    let cpu = |seconds: u64| Metric {
        descriptor: &CPU_TIME,
        points: vec![point(Attributes::new(), Data::Double((seconds * factor) as f64))],
    };
    let processed = Metric {
        descriptor: &PROCESSED,
        points: vec![point(Attributes::new().with("cpu.logical_number", 0_u32), Data::Integer(factor as i64))],
    };
    let mut snapshot = node(vec![cpu(1), processed], after(factor));
    let workload = |number: u64| {
        resource_metrics(Attributes::new().with("container.name", format!("web-{number}")), vec![cpu(number)])
    };
    snapshot.resources.extend((1..=12).map(workload));
    snapshot
}

/// Returns the title of each section with the first cells of its rows.
fn selected(selection: &Selection) -> Vec<(String, Vec<String>)> {
    let view = View::selected(Some(&loaded(1)), &loaded(2), &Recent::default(), None, selection);
    let names = |section: &Section| section.rows.iter().map(|row| row.cells[0].to_string()).collect();
    view.sections.iter().map(|section| (section.title.clone(), names(section))).collect()
}

#[test]
fn a_part_of_the_workloads_is_displayed_also_beyond_the_busiest() {
    let selection = Selection { workload: Some("WEB-1".to_owned()), ..Selection::default() };
    let names = ["web-12", "web-11", "web-10", "web-1"].map(str::to_owned);
    assert_eq!(selected(&selection), [("cpu.time".to_owned(), names.to_vec())], "the node's sections are left out");
}

#[test]
fn a_part_of_the_metrics_is_displayed_in_another_order() {
    let selection = Selection { metrics: Some(vec![CPU_TIME.name]), ..Selection::default() };
    let [(title, names)] = &selected(&selection)[..] else { panic!("one section") };
    assert_eq!((title.as_str(), names[0].as_str(), names.len()), ("cpu.time", "web-12", 9));
    let sorted = Selection { sort: Some("workload".to_owned()), ..selection };
    let [(_, names)] = &selected(&sorted)[..] else { panic!("one section") };
    assert!(names.is_sorted() && names[0] == "(node)", "{names:?}");
    let none = Selection { metrics: Some(Vec::new()), ..Selection::default() };
    assert!(selected(&none).is_empty());
}
