//! `latency`: time from a packet's receive timestamp to each layer of the receive path.

mod extra;
mod settings;

use undercurrent_ebpf::abi::{
    latency::{Layer, ReceivePoint, Transport},
    loss::PacketLoss,
    series::Series,
    waiting,
};

use self::extra::{EXTRA_LATENCY, ExtraLatency};
pub use self::{
    extra::group_words,
    settings::{HeadOfLineBlocking, Settings},
};
use super::{
    Caveat, Entry, HooksNeeded, LossConditions, OpenContext, OpenError, ReadError, Signal, attributes,
    durations::{self, DurationKind, Durations, GROUP_LATENCY, LATENCY, WORKLOAD_LATENCY},
    lost::{LOST, lost},
};
use crate::{
    Settings as Signals,
    kernel::{
        Kernel,
        hooks::{self, Hook},
        memory::{PlannedMap, Sizing},
    },
    packets::{self, Grouping},
    telemetry::{Attributes, Descriptor, Instrument, Metric, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |settings| settings.latency.layers().iter().flat_map(hooks_of).collect(),
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &EXTRA_LATENCY, &FORWARDS, &FORWARDED, &HOST_TIMES],
    constants: |on| on.settings.latency.constants(on.sizing),
    losses: |on| {
        let of_groups = packets::loss_reasons().filter(|_| on.grouped);
        KIND.reasons(on).into_iter().chain(extra::losses(on).map(durations::reason)).chain(of_groups).collect()
    },
    hooks_needed: HooksNeeded::Any,
    caveats,
    ..Entry::new(
        "latency",
        "Time from a packet's receive timestamp to each layer of the receive path",
        &[&DURATION],
        open,
    )
};

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let layers = opening.settings.latency.layers();
    let durations = Durations::open(opening, &KIND, |series| {
        let Series::Receive(ReceivePoint { layer, .. }) = series else { return false };
        layers.contains(layer) && hooks_of(layer).iter().all(|hook| opening.kernel.serves(hook))
    })?;
    Ok(Box::new(Latency { durations, extra: ExtraLatency::open(opening, &KIND)? }))
}

fn caveats(settings: &Signals, kernel: &Kernel) -> Vec<Caveat> {
    if !settings.latency.excludes_blocked(Layer::SocketRead) {
        return Vec::new();
    }
    let limitation = if !kernel.counts_reordered() {
        "before Linux 5.5, `socket_read` includes TCP reads that waited for a lost segment".to_owned()
    } else if !kernel.tracks_reordered() {
        let condition = if kernel.stores_readers() { "with kprobes," } else { "before Linux 5.11," };
        format!(
            "{condition} `socket_read` excludes a TCP connection after its first out-of-order segment, unless \
             `signals.latency.head_of_line_blocking` is `include`"
        )
    } else {
        return Vec::new();
    };
    vec![Caveat::Partial(limitation)]
}

/// The metric of the signal.
pub static DURATION: Descriptor = Descriptor {
    name: "undercurrent.network.receive.duration",
    unit: "s",
    description: "Time from a packet's receive timestamp to a layer, cumulative along the receive path. The layer `host` is the time of a \
                  forwarded packet before that, from its first receive timestamp on this host to its last one.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[
        attributes::LAYER,
        attributes::TRANSPORT,
        attributes::NETWORK,
        attributes::INTERFACE,
        attributes::NAMESPACE,
    ],
    view: View::Section,
};

/// The built-in layers and the extra layers.
struct Latency {
    durations: Box<dyn Signal>,
    extra: Option<ExtraLatency>,
}

impl Signal for Latency {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.durations.read(workloads, readings)?;
        self.extra.as_mut().map_or(Ok(()), |extra| extra.read(workloads, readings))
    }

    fn forget(&mut self, slot: Slot) {
        self.durations.forget(slot);
        if let Some(extra) = &mut self.extra {
            extra.forget(slot);
        }
    }
}

/// Whether this host has forwarded a packet.
static FORWARDS: PlannedMap = PlannedMap::new("FORWARDS", size_of::<u64>(), |_| 1);

/// The receive timestamps of forwarded packets.
static FORWARDED: PlannedMap = PlannedMap::new("FORWARDED", size_of::<u64>(), for_host);

/// The times of forwarded packets on this host.
static HOST_TIMES: PlannedMap = PlannedMap::new("HOST_TIMES", size_of::<u64>(), for_host);

/// Returns the number of entries of the tables for the layer `host`.
fn for_host(_: &Sizing) -> usize {
    waiting::ENTRIES
}

/// The attribute of the layer.
pub const LAYER: &str = attributes::LAYER.key;
/// The value of [`LAYER`] for the last layer.
pub const READ: &str = attributes::layer(Layer::SocketRead);

/// The definition of the duration signal.
pub static KIND: DurationKind =
    DurationKind { signal: ENTRY.name, metric: &DURATION, series: Series::RECEIVE, losses, describe };

/// Returns the losses of grouping, which count for this signal.
#[must_use]
pub fn lost_groups(grouping: &Grouping, start: UnixNanos) -> Metric {
    let point = |(reason, count)| lost(ENTRY.name, reason, Attributes::new(), count, start);
    Metric { descriptor: &LOST, points: grouping.losses().into_iter().map(point).collect() }
}

fn losses(series: Series, on: &LossConditions) -> Vec<PacketLoss> {
    let Series::Receive(ReceivePoint { layer, transport, .. }) = series else { return Vec::new() };
    let can_occur = |loss: &PacketLoss| match (loss, layer, transport) {
        (_, Layer::Host, _) => false,
        (PacketLoss::NoTimestamp | PacketLoss::Negative, ..) | (PacketLoss::TransmitTimestamp, Layer::Ip, _) => true,
        (PacketLoss::HeadOfLine, Layer::SocketEnqueued, Some(Transport::Tcp)) => on.blocked_at_arrival,
        (PacketLoss::HeadOfLine, Layer::SocketRead, Some(Transport::Tcp)) => on.blocked_at_read,
        (PacketLoss::MissingStart, Layer::SocketEnqueued, Some(Transport::Udp)) => on.read_before_enqueued,
        (PacketLoss::NotFilterable, ..) => on.filtered,
        _ => false,
    };
    PacketLoss::ALL.into_iter().filter(can_occur).collect()
}

/// Returns the hooks that measure a layer together.
fn hooks_of(layer: Layer) -> Vec<&'static Hook> {
    match layer {
        Layer::Host => vec![&hooks::FORWARD, &hooks::HOST],
        Layer::Ip => vec![&hooks::IP],
        Layer::Transport => vec![&hooks::TRANSPORT],
        Layer::SocketEnqueued => vec![&hooks::SOCKET_ENQUEUED],
        Layer::SocketRead => vec![&hooks::SOCKET_READ],
    }
}

fn describe(series: Series) -> Attributes {
    let Series::Receive(point) = series else { return Attributes::new() };
    let attributes = Attributes::new().with(attributes::LAYER.key, attributes::layer(point.layer));
    let attributes = match point.transport {
        Some(transport) => attributes.with(attributes::TRANSPORT.key, attributes::transport(transport)),
        None => attributes,
    };
    attributes.with(attributes::NETWORK.key, attributes::network(point.version))
}
