//! `tcp_peers`: transactions of TCP connections by both ends, and the service graph.

mod points;
mod series;
mod settings;
mod table;
mod totals;

use std::time::Instant;

use undercurrent_ebpf::abi::{
    peers::{Edge, OTHERS, PAIRS, Pair, PeerCells, PeerLoss},
    transactions::Role,
};

pub use self::settings::Settings;
use self::{points::Points, series::Series, table::Table};
use super::{
    Entry, OpenContext, OpenError, ReadError, Signal,
    durations::{LATENCY, WORKLOAD_LATENCY},
    lost::{LOST, lost},
    tcp_transactions::{HOOK, TRANSACTIONS},
};
use crate::{
    kernel::{constant::Feature, maps::ByCpu, memory::PlannedMap},
    telemetry::{Attributes, Metric, Readings, Scale, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&HOOK],
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &TRANSACTIONS, &EDGES_MAP, &PAIRS_MAP, &LOSSES],
    constants: |on| {
        let constants = on.settings.tcp_peers.constants();
        constants.map(|constant| constant.requires(Feature::SocketOfPacket)).to_vec()
    },
    losses: |_| PeerLoss::ALL.map(reason).to_vec(),
    is_detail: true,
    ..Entry::new(
        "tcp_peers",
        "Transactions of TCP connections by both ends: the peers of each workload, and the graph of services",
        points::METRICS,
        open,
    )
};

/// The edges, then those of connections without an entry.
static EDGES_MAP: PlannedMap = PlannedMap::new("EDGES", size_of::<Edge>(), |sizing| sizing.edges + OTHERS);
/// The ends of connections. The kernel keeps a header of an entry, which is as large as its data.
static PAIRS_MAP: PlannedMap = PlannedMap::new("PAIRS", 4 * size_of::<Pair>(), |_| PAIRS);
/// Losses by CPU.
static LOSSES: PlannedMap = PlannedMap::by_cpu::<PeerCells>("PEER_LOSSES", |sizing| sizing.cpus);

/// Returns the value of `undercurrent.reason`.
const fn reason(loss: PeerLoss) -> &'static str {
    match loss {
        PeerLoss::EdgeLimit => "edge_limit",
        PeerLoss::Unpaired => "unpaired",
        PeerLoss::StorageRefused => "storage_refused",
    }
}

struct TcpPeers {
    table: Table,
    losses: ByCpu<PeerCells>,
    series: Series,
    settings: Settings,
    scale: Scale,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let scale = opening.packets.scale;
    Ok(Box::new(TcpPeers {
        table: Table::new(opening.kernel.words(&EDGES_MAP)?, scale),
        losses: opening.kernel.by_cpu(&LOSSES)?,
        series: Series::default(),
        settings: opening.settings.tcp_peers.clone(),
        scale,
        start: opening.start,
    }))
}

impl Signal for TcpPeers {
    fn forget(&mut self, slot: Slot) {
        self.table.forget(slot);
        self.series.forget(slot);
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let Self { table, series, settings, scale, .. } = self;
        table.read(Instant::now(), |growth| series.add(&growth, &settings.networks));
        let mut points = Points::new(workloads, settings, *scale);
        series.iter().for_each(|(key, totals)| points.add(key, totals));
        for (role, totals) in [Role::Client, Role::Server].into_iter().zip(table.others()) {
            points.add_other(role, &totals);
        }
        points.into_readings(readings, self.start);
        self.add_losses(readings);
        Ok(())
    }
}

impl TcpPeers {
    fn add_losses(&self, readings: &mut Readings) {
        let mut counts = PeerLoss::ALL.map(|loss| (loss, 0_u64));
        self.losses
            .for_each(|_, cells| counts.iter_mut().for_each(|(loss, count)| *count += cells.lost[*loss as usize]));
        let point = |(loss, count)| lost(ENTRY.name, reason(loss), Attributes::new(), count, self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: counts.map(point).to_vec() });
    }
}
