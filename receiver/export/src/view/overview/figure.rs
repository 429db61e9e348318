//! The figures of a workload: the columns of the first screen, and the input of the rules of [causes](super::cause).

use super::definitions::{DEFINITIONS, Definition, Kind};
use crate::{
    telemetry::{Attributes, Data, Value},
    view::{
        Quantity,
        change::{Change, Measured},
        input::Input,
    },
};

/// A figure of a workload in the last interval. Some figures are those of the node, and equal for all workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Received segments per second.
    Segments,
    /// Wait of data in the queue of its socket, p99.
    Wait,
    /// From the receive timestamp to the read of the application, p99.
    Host,
    /// From the receive timestamp to the transport protocol, p99.
    Stack,
    /// Smoothed round-trip time, p50.
    Rtt,
    /// Retransmitted segments per second.
    Retransmits,
    /// Retransmitted segments for each received segment.
    RetransmitShare,
    /// Packets that this host dropped at a device, a qdisc or a socket, per second.
    Drops,
    /// Drops for each received or dropped segment.
    DropShare,
    /// CPU time in the network stack, in CPUs.
    NetworkCpu,
    /// CPU time, in CPUs.
    Cpu,
    /// Time for which a quota held runnable tasks, in CPUs.
    Throttled,
    /// Stolen part of the CPU time of the node.
    Steal,
    /// Used part of the CPU time of the node.
    NodeBusy,
    /// Power in watts.
    Power,
    /// Requests per second.
    Requests,
    /// Duration of a request with its response, p99.
    Response,
}

/// The points of a metric that count for a figure.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The name of the metric.
    pub metric: &'static str,
    /// Attributes with their accepted values.
    pub attributes: &'static [(&'static str, &'static [&'static str])],
}

impl Figure {
    /// All figures.
    pub const ALL: [Self; 17] = [
        Self::Segments,
        Self::Wait,
        Self::Host,
        Self::Stack,
        Self::Rtt,
        Self::Retransmits,
        Self::RetransmitShare,
        Self::Drops,
        Self::DropShare,
        Self::NetworkCpu,
        Self::Cpu,
        Self::Throttled,
        Self::Steal,
        Self::NodeBusy,
        Self::Power,
        Self::Requests,
        Self::Response,
    ];
    /// The figures with a column on the first screen.
    pub const COLUMNS: [Self; 10] = [
        Self::Segments,
        Self::Wait,
        Self::Host,
        Self::Rtt,
        Self::Retransmits,
        Self::Drops,
        Self::NetworkCpu,
        Self::Power,
        Self::Requests,
        Self::Response,
    ];

    /// Returns the name in sentences.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Returns the heading of its column.
    #[must_use]
    pub fn heading(self) -> &'static str {
        self.definition().heading
    }

    /// Returns the metrics of the figure.
    #[must_use]
    pub fn sources(self) -> &'static [Source] {
        self.definition().sources
    }

    /// Returns a value of the figure with its unit.
    #[must_use]
    pub fn quantity(self, value: f64) -> Quantity {
        match self.definition().kind {
            Kind::PerSecond => Quantity::rate(value, "1"),
            Kind::Watts => Quantity::amount(value, "W"),
            Kind::Share | Kind::ShareOfNode | Kind::Ratio(..) => Quantity::share(value),
            Kind::Quantile(_) => Quantity::seconds(value),
        }
    }

    /// Returns a value of the figure for its column. The heading of the column has the `/s`.
    #[must_use]
    pub fn cell(self, value: f64) -> Quantity {
        match self.definition().kind {
            Kind::PerSecond => Quantity::number(value),
            _ => self.quantity(value),
        }
    }

    pub(super) fn definition(self) -> &'static Definition {
        &DEFINITIONS[self as usize]
    }
}

/// The values of the figures of one workload, without those that were not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures([Option<f64>; Figure::ALL.len()]);

impl Figures {
    /// Returns the value of a figure: seconds, events per second, watts, or a part of a whole.
    #[must_use]
    pub fn get(&self, figure: Figure) -> Option<f64> {
        self.0[figure as usize]
    }

    /// Returns a copy with a value.
    #[must_use]
    pub fn with(mut self, figure: Figure, value: f64) -> Self {
        self.0[figure as usize] = Some(value);
        self
    }

    /// Returns the figures of the node that apply to every workload.
    pub(super) fn of_node(input: &Input<'_>) -> Self {
        Self::default().filled(|figures, figure| match figure.definition().kind {
            Kind::ShareOfNode => figures.share_of_node(input, figure),
            _ => None,
        })
    }

    /// Adds the figures of a resource.
    pub(super) fn of_resource(self, input: &Input<'_>, index: usize) -> Self {
        self.filled(|figures, figure| match figure.definition().kind {
            Kind::ShareOfNode => figures.get(figure),
            Kind::Ratio(part, whole) => figures.ratio(part, whole),
            kind => measured(kind, &figure.sources().iter().find_map(|source| source.changes(input, index))?),
        })
    }

    fn filled(mut self, value: impl Fn(&Self, Figure) -> Option<f64>) -> Self {
        for figure in Figure::ALL {
            self.0[figure as usize] = value(&self, figure);
        }
        self
    }

    fn share_of_node(&self, input: &Input<'_>, figure: Figure) -> Option<f64> {
        let cpus = input.cpus?.get() as f64;
        let resources = 0..input.current.resources.len();
        let of_source = |source: &Source| {
            let changes: Vec<Change<'_>> =
                resources.clone().filter_map(|index| source.changes(input, index)).flatten().collect();
            measured(Kind::Share, &changes)
        };
        figure.sources().iter().find_map(of_source).map(|share| share / cpus)
    }

    fn ratio(&self, part: Figure, whole: &[Figure]) -> Option<f64> {
        let whole: f64 = whole.iter().filter_map(|figure| self.get(*figure)).sum();
        self.get(part).filter(|_| whole > 0.0).map(|part| part / whole)
    }
}

impl Source {
    /// Returns the changes of a resource's points; `None` without points.
    fn changes<'a>(&self, input: &Input<'a>, index: usize) -> Option<Vec<Change<'a>>> {
        let mut changes = input.changes(&input.current.resources[index], self.metric);
        changes.retain(|change| self.accepts(change.attributes));
        (!changes.is_empty()).then_some(changes)
    }

    fn accepts(&self, attributes: &Attributes) -> bool {
        let accepted = |key, values: &[&'static str]| {
            attributes.get(key).is_some_and(|value| values.iter().any(|known| *value == Value::from(*known)))
        };
        self.attributes.iter().all(|(key, values)| accepted(key, values))
    }
}

/// Returns the value of changes; `None` without an interval, and without a duration in it.
fn measured(kind: Kind, changes: &[Change<'_>]) -> Option<f64> {
    let Kind::Quantile(quantile) = kind else {
        return changes.iter().map(Change::per_second).sum();
    };
    let mut sum = changes.first()?.copy();
    changes[1..].iter().for_each(|change| sum.add(change));
    match sum.value {
        Measured::Distribution(histogram) => histogram.quantile(quantile),
        _ => None,
    }
}

/// Returns true if a resource has a value of a figure's metric.
pub(super) fn has_points(input: &Input<'_>, index: usize) -> bool {
    let is_source =
        |name: &str| Figure::COLUMNS.iter().flat_map(|figure| figure.sources()).any(|source| source.metric == name);
    let metrics = input.current.resources[index].metrics.iter();
    metrics
        .filter(|metric| is_source(metric.descriptor.name))
        .any(|metric| metric.points.iter().any(|point| point.data != Data::NoRecordedValue))
}
