//! `transmit`: how long packets take for each part of their way out.

mod settings;

use undercurrent_ebpf::abi::{
    latency::{Series, Transport},
    loss::PacketLoss,
    transmit::{Departure, SETS, SetOfWays, TransmitLayer},
};

pub use self::settings::{Settings, Stages};
use super::{
    Entry, HooksNeeded, attributes,
    durations::{Durations, GROUP_LATENCY, Kind, LATENCY, WORKLOAD_LATENCY},
};
use crate::{
    kernel::{
        hooks::{self, Hook},
        memory::PlannedMap,
    },
    telemetry::{Attributes, Descriptor, Instrument, View},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    name: "transmit",
    summary: "Time that packets take for each part of their way out",
    metrics: &[&DURATION],
    hooks: |settings| {
        let layers = &settings.transmit.stages;
        let departures = || Departure::ALL.into_iter().filter(|departure| layers.contains(departure.layer));
        let needed = |hook: &&Hook| departures().flat_map(hooks).any(|needed| needed.name == hook.name);
        hooks::SHARED.into_iter().filter(needed).collect()
    },
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &DEPARTING],
    losses: || KIND.reasons(),
    hooks_needed: HooksNeeded::Any,
    caveats: |_, _| Vec::new(),
    open: |opening| {
        let layers = &opening.settings.transmit.stages;
        Durations::open(opening, &KIND, |series| {
            let Series::Transmit(departure) = series else { return false };
            layers.contains(departure.layer) && hooks(departure).iter().all(|hook| opening.kernel.serves(hook))
        })
    },
};

static DURATION: Descriptor = Descriptor {
    name: "undercurrent.network.transmit.duration",
    unit: "s",
    description: "Time that a packet took for a part of its way out, beyond its departure time.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[attributes::STAGE, attributes::TRANSPORT, attributes::INTERFACE, attributes::NAMESPACE],
    view: View::Section,
};

/// Packets on their way out, by layer.
static DEPARTING: PlannedMap =
    PlannedMap::new("DEPARTING", size_of::<SetOfWays>(), |_| TransmitLayer::ALL.len() * SETS);

static KIND: Kind = Kind {
    signal: ENTRY.name,
    metric: &DURATION,
    series: Series::TRANSMIT,
    losses: &[PacketLoss::NoTimestamp, PacketLoss::Negative, PacketLoss::Unmatched, PacketLoss::Unfiltered],
    describe: |series| {
        let Series::Transmit(departure) = series else { return Attributes::new() };
        let attributes = Attributes::new().with(attributes::STAGE.key, attributes::stage(departure.layer));
        attributes.with(attributes::TRANSPORT.key, attributes::transport(departure.transport))
    },
};

/// Where a packet enters a layer, and where it leaves it. Of TCP's its stamp says when it enters `transport`.
fn hooks(departure: Departure) -> Vec<&'static Hook> {
    match departure.layer {
        TransmitLayer::Transport if departure.transport == Transport::Tcp => vec![&hooks::TRANSMIT_QUEUE],
        TransmitLayer::Transport => vec![&hooks::TRANSMIT_SEND, &hooks::TRANSMIT_QUEUE],
        TransmitLayer::Qdisc => vec![&hooks::TRANSMIT_QUEUE, &hooks::TRANSMIT_START],
        TransmitLayer::Device => vec![&hooks::TRANSMIT_START, &hooks::TRANSMIT_END],
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

    use undercurrent_ebpf::abi::{
        latency::waiting::mix_twice,
        transmit::{SETS, WAYS, set},
    };

    use super::*;

    /// The addresses of packets that wait together lie in runs, of a slab's pages: how many of them find no room, in the
    /// worst of many layouts.
    #[test]
    fn few_of_those_that_wait_together_find_no_room() {
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
