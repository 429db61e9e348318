//! `transmit`: time that packets spend in each stage of the transmit path.
//!
//! A program cannot write into a packet. It stores the start of a stage in the map `STAGE_STARTS`, under a hash of the packet's address, and
//! takes it at the end of the stage. TCP needs no entry for `stack`, because its segments have their send time.
//!
//! ```text
//!  hook                 stack                      qdisc                       device
//!  ip_send_skb (UDP)    store start
//!  net_dev_queue        take start, record;        store start (a later
//!                       TCP: now - send time       send time counts)
//!  net_dev_start_xmit                              take start, record          store start (NICs only)
//!  consume_skb                                                                 take start, record
//!  kfree_skb (drop)     take start                 take start                  take start
//!
//!  STAGE_STARTS: stage x 4096 sets of 4 entries      entry: [ 24 bits of the hash | 40 bits of the start, ns ]
//! ```
//!
//! A start of zero marks a packet outside of the sample. A stage without a start counts as `missing_start`, for example after another packet
//! replaced its entry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::{
    latency::Transport,
    loss::PacketLoss,
    series::Series,
    transmit::{SETS, SetOfWays, TransmitLayer, TransmitSeries},
};

use super::{
    Entry, HooksNeeded, LossConditions, OpenContext, OpenError, Signal, attributes,
    durations::{DurationKind, Durations, GROUP_LATENCY, LATENCY, WORKLOAD_LATENCY},
};
use crate::{
    kernel::{
        constant::Constant,
        hooks::{self, Hook},
        memory::PlannedMap,
    },
    options::List,
    telemetry::{Attributes, Descriptor, Instrument, View},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |settings| {
        let layers = &settings.transmit.stages;
        let transmit_series = || TransmitSeries::ALL.into_iter().filter(|of| layers.contains(of.layer));
        let needed = |hook: &&Hook| transmit_series().flat_map(hooks).any(|needed| needed.name == hook.name);
        hooks::SHARED.into_iter().filter(needed).collect()
    },
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &STAGE_STARTS],
    constants: |on| on.settings.transmit.constants(),
    losses: |on| KIND.reasons(on),
    hooks_needed: HooksNeeded::Any,
    is_detail: true,
    ..Entry::new("transmit", "Time that packets spend in each stage of the transmit path", &[&DURATION], open)
};

/// Time that packets spend in each stage of the transmit path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured. The default is true at the level `detailed`, and false at `normal`.
    #[schemars(with = "bool", extend("examples" = [true]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The stages to measure: `stack` (from TCP or UDP to the qdisc), `qdisc` (from there to the driver) and `device` (until the driver
    /// frees the packet). The programs of `device` run for every freed packet, received packets included.
    pub stages: List<TransmitLayer>,
}

impl Settings {
    /// Returns the constants of the programs.
    fn constants(&self) -> Vec<Constant> {
        let stages = self.stages.iter().map(TransmitLayer::bit).sum();
        vec![
            Constant::flag("signal.transmit", self.enabled.unwrap_or_default()),
            Constant::number("transmit.layers", stages),
        ]
    }
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let layers = &opening.settings.transmit.stages;
    Durations::open(opening, &KIND, |series| {
        let Series::Transmit(of) = series else { return false };
        layers.contains(of.layer) && hooks(of).iter().all(|hook| opening.kernel.serves(hook))
    })
}

static DURATION: Descriptor = Descriptor {
    name: "undercurrent.network.transmit.duration",
    unit: "s",
    description: "Time that a packet spent in a stage of the transmit path, after its departure time.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[attributes::STAGE, attributes::TRANSPORT, attributes::INTERFACE, attributes::NAMESPACE],
    view: View::Section,
};

/// Packets on the transmit path, by stage.
static STAGE_STARTS: PlannedMap =
    PlannedMap::new("STAGE_STARTS", size_of::<SetOfWays>(), |_| TransmitLayer::ALL.len() * SETS);

static KIND: DurationKind = DurationKind {
    signal: ENTRY.name,
    metric: &DURATION,
    series: Series::TRANSMIT,
    losses,
    describe: |series| {
        let Series::Transmit(of) = series else { return Attributes::new() };
        let attributes = Attributes::new().with(attributes::STAGE.key, attributes::stage(of.layer));
        attributes.with(attributes::TRANSPORT.key, attributes::transport(of.transport))
    },
};

fn losses(series: Series, on: &LossConditions) -> Vec<PacketLoss> {
    let Series::Transmit(of) = series else { return Vec::new() };
    // TCP's own timestamp replaces a recorded start.
    let has_departure_time = hooks(of) == [&hooks::TRANSMIT_QUEUE];
    let can_occur = |loss: &PacketLoss| match loss {
        PacketLoss::NoTimestamp | PacketLoss::Negative => has_departure_time,
        PacketLoss::MissingStart => !has_departure_time,
        PacketLoss::NotFilterable => on.filtered,
        PacketLoss::TransmitTimestamp | PacketLoss::HeadOfLine => false,
    };
    PacketLoss::ALL.into_iter().filter(can_occur).collect()
}

/// Returns the hooks where a packet enters and leaves a stage. TCP's own timestamp marks the entry into `transport`.
fn hooks(of: TransmitSeries) -> Vec<&'static Hook> {
    match of.layer {
        TransmitLayer::Transport if of.transport == Transport::Tcp => vec![&hooks::TRANSMIT_QUEUE],
        TransmitLayer::Transport => vec![&hooks::TRANSMIT_SEND, &hooks::TRANSMIT_QUEUE],
        TransmitLayer::Qdisc => vec![&hooks::TRANSMIT_QUEUE, &hooks::TRANSMIT_START],
        TransmitLayer::Device => vec![&hooks::TRANSMIT_START, &hooks::TRANSMIT_END],
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

    use undercurrent_ebpf::abi::{
        transmit::{SETS, WAYS, set},
        waiting::mix_twice,
    };

    use super::*;

    /// Packets that wait simultaneously have addresses in runs, in the pages of a slab. This test counts the packets
    /// that find no free entry, in the worst of many layouts.
    #[test]
    fn few_simultaneous_packets_find_no_free_entry() {
        const PACKETS: usize = 3000;
        const PAGE: u64 = 8192;
        let lost = |layout: u64| {
            let (size, pages) = ([192, 256, 320, 384, 512][layout as usize % 5], 1 << (layout / 5 % 9));
            let anywhere = |run: u64| BuildHasherDefault::<DefaultHasher>::default().hash_one((layout, run)) >> 46;
            let runs = (0..).map(|run| 0xffff_8880_0000_0000 + anywhere(run) * PAGE);
            let page = |start: u64| (0..PAGE / size).map(move |packet| start + packet * size);
            let packets = runs.flat_map(|run| (0..pages).flat_map(move |nth| page(run + nth * PAGE)));
            let mut taken = vec![0; SETS];
            for address in packets.take(PACKETS) {
                taken[set(TransmitLayer::Transport, mix_twice(address)) as usize] += 1;
            }
            taken.into_iter().map(|taken: usize| taken.saturating_sub(WAYS)).sum::<usize>()
        };
        let worst = (0..1000).map(lost).max().unwrap();
        assert!(worst <= 20, "{worst} of {PACKETS}");
    }
}
