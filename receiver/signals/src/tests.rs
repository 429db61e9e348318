//! Tests of the registry.

use std::collections::BTreeSet;

use undercurrent_ebpf::abi::{driver::DriverLoss, loss::PacketLoss};
use undercurrent_loader::object;

use super::*;
use crate::{
    kernel::memory::Sizing,
    sysfs::Meters,
    telemetry::{AttributeKey, Scale, View},
};

#[test]
fn names_are_unique_and_known_to_the_configuration() {
    let names: BTreeSet<_> = REGISTRY.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), REGISTRY.len());
    let configured = serde_json::to_value(Settings::default()).expect("settings");
    let configured: BTreeSet<_> = configured.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), configured);
}

#[test]
fn disabling_a_signal_that_shares_a_hook_changes_a_constant() {
    let sizing = Sizing::new(1, Scale::DEFAULT);
    let (complete, mut disabled) = (Settings::complete(), Settings::complete());
    disabled.disable_all();
    let constants = |entry: &Entry, settings: &Settings| {
        (entry.constants)(&ConstantContext { settings, sizing: &sizing, meters: &Meters::default() })
    };
    for entry in REGISTRY {
        let others = REGISTRY.iter().filter(|other| other.name != entry.name);
        let others: Vec<_> = others.flat_map(|other| (other.hooks)(&complete)).collect();
        let is_shared = (entry.hooks)(&complete).iter().any(|hook| others.contains(hook));
        let changes = constants(entry, &complete) != constants(entry, &disabled);
        assert!(changes || !is_shared, "the programs measure {} although it is off", entry.name);
    }
}

#[test]
fn every_map_with_a_machine_dependent_size_is_planned() {
    let object = aya_obj::Object::parse(object::OBJECT).expect("the object");
    let planned: BTreeSet<_> = planned_maps(&Settings::default()).map(|(map, _)| map.name).collect();
    let missing: Vec<_> = planned.iter().filter(|map| !object.maps.contains_key(**map)).collect();
    assert!(missing.is_empty(), "the object has no map {missing:?}");
    // One entry is the placeholder for a machine-dependent size. Per-CPU arrays of one entry are scratch buffers.
    let scratch = aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY as u32;
    let unplanned: Vec<_> = object
        .maps
        .iter()
        .filter(|(name, map)| {
            map.section_kind() == aya_obj::EbpfSectionKind::Maps
                && map.max_entries() == 1
                && map.map_type() != scratch
                && !planned.contains(name.as_str())
        })
        .map(|(name, _)| name)
        .collect();
    assert!(unplanned.is_empty(), "{unplanned:?} keep one entry");
}

#[test]
fn losses_in_code_have_the_exported_names() {
    let name = |loss: &dyn std::fmt::Debug| format!("{loss:?}").to_lowercase();
    for loss in PacketLoss::ALL {
        assert_eq!(name(&loss), durations::reason(loss).replace('_', ""));
    }
    for loss in DriverLoss::ALL {
        assert_eq!(name(&loss), receive_driver::reason(loss).replace('_', ""));
    }
}

#[test]
fn every_loss_reason_is_in_the_catalogue() {
    let lost = catalogue().find(|(_, metric)| metric.name == "undercurrent.lost").expect("a metric").1;
    let reasons = lost.attributes.iter().find(|key| key.key == lost::REASON).expect("a key").known();
    for reason in ["no_timestamp", "read_failed", "group_limit", "missing_raise", "no_clock", "scan_cut", "late_tick"] {
        assert!(reasons.contains(&reason), "{reason}");
    }
}

#[test]
fn related_histograms_are_in_the_catalogue() {
    let beside = |metric: &Descriptor| if let View::Beside(sides) = metric.view { sides } else { &[] };
    for (metric, side) in catalogue().flat_map(|(_, metric)| beside(metric).iter().map(move |side| (metric, side))) {
        let (_, other) = catalogue().find(|(_, other)| other.name == side.metric).expect(side.metric);
        assert_eq!((other.instrument, other.unit), (metric.instrument, metric.unit), "{}", side.metric);
        let has =
            |(key, value): &(_, _)| other.attributes.iter().any(|of| of.key == *key && of.known().contains(value));
        assert!(side.attributes.iter().all(has), "{side:?}");
        let is_shared =
            |key: &&AttributeKey| !key.opt_in && !side.attributes.iter().any(|(chosen, _)| *chosen == key.key);
        let left: Vec<_> = other.attributes.iter().filter(is_shared).collect();
        assert_eq!(left, metric.attributes.iter().collect::<Vec<_>>(), "{} has a row for each", metric.name);
    }
}

#[test]
fn figures_are_in_the_catalogue() {
    let figures = |metric: &Descriptor| if let View::Summary(figures) = metric.view { figures } else { &[] };
    let has = |name: &str, (key, value): &(&str, &str)| {
        let (_, metric) = catalogue().find(|(_, metric)| metric.name == name).expect(name);
        metric.attributes.iter().any(|of| of.key == *key && of.known().contains(value))
    };
    for figure in catalogue().flat_map(|(_, metric)| figures(metric)) {
        assert!(catalogue().any(|(_, metric)| metric.name == figure.metric), "{}", figure.metric);
        assert!(figure.attributes.iter().all(|attribute| has(figure.metric, attribute)), "{figure:?}");
    }
}

#[test]
fn metrics_follow_the_conventions() {
    let mut names = BTreeSet::new();
    for (_, metric) in catalogue() {
        assert!(names.insert(metric.name), "{} stands once", metric.name);
        assert!(!metric.name.split('.').any(|part| part == "total"), "{}", metric.name);
        assert!(metric.description.ends_with('.'), "{}", metric.name);
    }
}
