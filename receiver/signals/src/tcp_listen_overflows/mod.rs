//! `tcp_listen_overflows`: connection attempts that TCP dropped because the accept queue was full, by the listener's workload.
//!
//! Without the hook, the kernel's own counter serves: it covers one network namespace and knows no workloads.

mod netstat;

use self::netstat::Netstat;
use super::{
    Caveat, Entry, HooksNeeded, OpenContext, OpenError, Signal,
    slot_counter::{self, CountMap, SlotCounter},
    slot_words::unsharded,
};
use crate::{
    kernel::{
        hooks::{Hook, all_or_none, fentry},
        memory::PlannedMap,
    },
    telemetry::{Attributes, Descriptor},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&HOOK],
    maps: &[&LISTEN_OVERFLOWS],
    hooks_needed: HooksNeeded::None,
    caveats: |_, kernel| {
        let reason = "`/proc/net/netstat` counts for the node, and only in the sidecar's network namespace";
        if kernel.serves(&HOOK) { Vec::new() } else { vec![Caveat::Partial(reason.to_owned())] }
    },
    ..Entry::new(
        "tcp_listen_overflows",
        "Connection attempts that TCP dropped because the accept queue was full, of each listening workload and of the node \
              for the rest",
        &[&OVERFLOWS.metric],
        open,
    )
};

static OVERFLOWS: SlotCounter = SlotCounter {
    metric: Descriptor::counter(
        "undercurrent.tcp.listen.overflows",
        "{attempt}",
        "Connection attempts that TCP dropped because the accept queue was full. A retransmitted attempt counts again.",
        &[],
    ),
    map: CountMap { map: &LISTEN_OVERFLOWS, words: 1, is_sharded: false, of_node: None },
    counts: |_| vec![(0, Attributes::new())],
    has_zeros: true,
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

/// Attempts by slot.
static LISTEN_OVERFLOWS: PlannedMap = PlannedMap::new("LISTEN_OVERFLOWS", size_of::<u64>(), unsharded::<1>);

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    if opening.kernel.serves(&HOOK) {
        return slot_counter::open(opening, [&OVERFLOWS]);
    }
    Ok(Box::new(Netstat::start(&OVERFLOWS.metric, opening.start)?))
}
