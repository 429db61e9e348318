//! `network_drops`: packets that the kernel dropped, by drop reason.

mod layers;

use undercurrent_ebpf::abi::drops::COUNTS;

use self::layers::{LAYERS, layer};
use super::{
    Entry,
    slot_counter::{self, CountMap, SlotCounter},
};
use crate::{
    kernel::{Kernel, constant::Constant, hooks, memory::PlannedMap},
    telemetry::{AttributeKey, Attributes, Descriptor},
};

pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&hooks::DROP],
    maps: &[&DROPS, &WORKLOAD_DROPS],
    constants: |on| vec![Constant::flag("signal.network_drops", on.settings.network_drops.enabled)],
    ..Entry::new(
        "network_drops",
        "Packets that the kernel dropped, by drop reason, and by workload if the packet has a socket",
        &[&PACKETS.metric],
        |opening| slot_counter::open(opening, [&PACKETS]),
    )
};

const LAYER: &str = "undercurrent.drop.layer";
const REASON: &str = "undercurrent.drop.reason";

static PACKETS: SlotCounter = SlotCounter {
    metric: Descriptor::counter(
        "undercurrent.network.drops",
        "{packet}",
        "Packets that the kernel dropped, by drop reason.",
        &[
            AttributeKey::listed(LAYER, LAYERS),
            AttributeKey::open(REASON, "the kernel's drop reason, such as no_socket"),
        ],
    ),
    map: CountMap { map: &WORKLOAD_DROPS, words: COUNTS, is_sharded: false, of_node: Some(&DROPS) },
    counts,
    has_zeros: false,
};

/// Packets by CPU and drop reason.
static DROPS: PlannedMap = PlannedMap::new("DROPS", size_of::<u64>(), |sizing| sizing.cpus * COUNTS);
/// Packets by slot and drop reason.
static WORKLOAD_DROPS: PlannedMap =
    PlannedMap::new("WORKLOAD_DROPS", size_of::<u64>(), |sizing| sizing.slots() * COUNTS);

fn counts(kernel: &Kernel) -> Vec<(usize, Attributes)> {
    let reasons = kernel.drop_reasons();
    let count = |index| {
        let reason = reasons.at(index)?;
        let attributes = Attributes::new().with(LAYER, layer(reason)).with(REASON, reason.to_owned());
        Some((index, attributes))
    };
    (0..COUNTS).filter_map(count).collect()
}
