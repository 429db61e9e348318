//! `tcp_listen_overflows`: connection attempts that TCP dropped because the accept queue was full, by the listener's workload.
//!
//! Without the hook, the kernel's own counter serves: it covers one network namespace and knows no workloads.

mod netstat;

use std::{iter, sync::atomic::Ordering};

use self::netstat::Netstat;
use super::{Caveat, Entry, HooksNeeded, OpenContext, OpenError, ReadError, Signal};
use crate::{
    kernel::{
        hooks::{Hook, all_or_none, fentry},
        maps::Words,
        memory::PlannedMap,
    },
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    name: "tcp_listen_overflows",
    summary: "Connection attempts that TCP dropped because the accept queue was full, of each listening workload and of the node \
              for the rest",
    metrics: &[&OVERFLOWS],
    hooks: |_| vec![&HOOK],
    maps: &[&LISTEN_OVERFLOWS],
    constants: |_| Vec::new(),
    losses: |_| Vec::new(),
    hooks_needed: HooksNeeded::None,
    tasks: &[],
    caveats: |_, kernel| {
        let reason = "`/proc/net/netstat` counts for the node, and only in the sidecar's network namespace";
        if kernel.serves(&HOOK) { Vec::new() } else { vec![Caveat::Partial(reason.to_owned())] }
    },
    open,
};

static OVERFLOWS: Descriptor = Descriptor {
    name: "undercurrent.tcp.listen.overflows",
    unit: "{attempt}",
    description: "Connection attempts that TCP dropped because the accept queue was full. A retransmitted attempt counts again.",
    instrument: Instrument::Counter,
    attributes: &[],
    view: View::Section,
};

/// A connection attempt at a listening socket. Each function sees other attempts. Linux 6.1 refuses fentry for two of them. The functions of kprobes have no safe access to the socket's owner.
static HOOK: Hook = Hook {
    name: "tcp_listen",
    reads_timestamps: false,
    sees_traffic: true,
    within: None,
    alternates: &[all_or_none(
        "fentry",
        &[fentry("tcp_conn_request"), fentry("tcp_v4_syn_recv_sock"), fentry("tcp_v6_syn_recv_sock")],
    )],
};

/// Attempts by slot. The node has a slot even if nothing is grouped by workload.
static LISTEN_OVERFLOWS: PlannedMap =
    PlannedMap::new("LISTEN_OVERFLOWS", size_of::<u64>(), |sizing| sizing.slots().max(1));

enum Source {
    Programs(Words),
    Kernel(Netstat),
}

struct TcpListenOverflows {
    source: Source,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let source = if opening.kernel.serves(&HOOK) {
        Source::Programs(opening.kernel.words(&LISTEN_OVERFLOWS)?)
    } else {
        Source::Kernel(Netstat::start()?)
    };
    Ok(Box::new(TcpListenOverflows { source, start: opening.start }))
}

impl Signal for TcpListenOverflows {
    fn forget(&mut self, slot: Slot) {
        if let Source::Programs(words) = &self.source {
            let slot = usize::from(slot.0);
            words.slice(slot..slot + 1)[0].store(0, Ordering::Relaxed);
        }
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let counts: Vec<(Slot, UnixNanos, u64)> = match &mut self.source {
            Source::Programs(words) => {
                let slots = iter::once((Slot::NODE, self.start)).chain(workloads.slots());
                let count = |slot: Slot| {
                    let slot = usize::from(slot.0);
                    words.slice(slot..slot + 1)[0].load(Ordering::Relaxed)
                };
                slots.map(|(slot, start)| (slot, start, count(slot))).collect()
            }
            Source::Kernel(netstat) => vec![(Slot::NODE, self.start, netstat.overflows()?)],
        };
        // Most workloads have none.
        for (slot, start, count) in counts.into_iter().filter(|(slot, _, count)| *slot == Slot::NODE || *count > 0) {
            let data = Data::count(count);
            readings.add(
                slot,
                Metric { descriptor: &OVERFLOWS, points: vec![Point { attributes: Attributes::new(), start, data }] },
            );
        }
        Ok(())
    }
}
