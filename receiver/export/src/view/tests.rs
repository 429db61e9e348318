use super::*;
use crate::{
    telemetry::{Attributes, Data, Metric},
    testing::{CPU, EXPORTED, HOOK, LOST, after, node, point, resource_metrics},
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
