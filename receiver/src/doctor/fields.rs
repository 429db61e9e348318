//! Missing kernel fields, and their consequences.

use serde::Serialize;

use crate::kernel::fields::FieldFact;

/// A kernel field that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AbsentField {
    /// The struct and path; all candidates if kernels differ.
    pub field: String,
    /// The reason.
    pub reason: String,
    /// The consequence, if known.
    pub cost: Option<&'static str>,
}

/// Fields that another field replaces on kernels without them.
const SERVED_BY: [(&str, &str); 4] = [
    ("scm_timestamping_internal.ts.0.tv_sec", "scm_timestamping_internal.ts.0"),
    ("scm_timestamping_internal.ts.0.tv_nsec", "scm_timestamping_internal.ts.0"),
    ("pt_regs.orig_ax", "pt_regs.syscallno"),
    ("pt_regs.syscallno", "pt_regs.orig_ax"),
];

/// The consequences of missing fields.
const COSTS: [(&str, &str); 5] = [
    (
        "sk_buff.tstamp_type..sk_buff.mono_delivery_time",
        "this costs nothing before Linux 5.18, because departure times never reach a receive hook there; later kernels' \
         departure times are recognized by their size",
    ),
    (
        "sock.sk_rx_dst_ifindex",
        "a filter by interface cannot select reads of TCP, which then count as `not_filterable`",
    ),
    (
        "perf_event.hw.hrtimer._softexpires",
        "a late sample of the timer counts as one period, and the samples that the kernel drops are not counted",
    ),
    (
        "task_struct.thread_info.status",
        "samples in system calls of 32-bit programs count as other work if a call with the same number of 64-bit programs does no \
         network work",
    ),
    (
        "task_group.se",
        "the CPU time of a workload between its last reading and its removal counts for the enclosing workload or the node",
    ),
];

/// Returns the fields that the kernel lacks and that no other field replaces.
pub fn absent(fields: &[FieldFact]) -> Vec<AbsentField> {
    let present = |symbol: &str| fields.iter().any(|field| field.symbol == symbol && field.absence.is_none());
    let absent = |field: &FieldFact| {
        let absence = field.absence.as_ref()?;
        let symbol = field.symbol.as_str();
        let served = SERVED_BY.iter().any(|(lacking, serving)| *lacking == symbol && present(serving));
        (!served).then(|| AbsentField {
            field: symbol.replace("..", " or "),
            reason: absence.clone(),
            cost: COSTS.iter().find(|(known, _)| *known == symbol).map(|(_, cost)| *cost),
        })
    };
    fields.iter().filter_map(absent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::{
        btf::Btf,
        fields::{ResolvedField, declared, resolve},
        object::OBJECT,
    };

    fn on(kernel: &str) -> Vec<AbsentField> {
        let path = format!("{}/receiver/fixtures/btf/{kernel}.btf", env!("UNDERCURRENT_WORKSPACE"));
        let raw = std::fs::read(path).expect("a fixture");
        let btf = Btf::parse(&raw).expect("BTF");
        let fields = resolve(&btf, &declared(OBJECT).expect("declarations"));
        absent(&fields.iter().map(ResolvedField::fact).collect::<Vec<_>>())
    }

    #[test]
    fn all_names_are_fields_of_the_object() {
        let declared: Vec<_> = declared(OBJECT).expect("declarations").into_iter().map(|field| field.symbol).collect();
        let names = SERVED_BY.iter().flat_map(|(lacking, serving)| [lacking, serving]);
        for name in names.chain(COSTS.iter().map(|(name, _)| name)) {
            assert!(declared.iter().any(|symbol| symbol == name), "{name}");
        }
    }

    #[test]
    fn only_fields_without_a_replacement_are_absent() {
        assert_eq!(on("6.12"), []);
        let new: Vec<_> = on("7.2").into_iter().map(|field| field.field).collect();
        assert_eq!(new, ["task_group.se"], "`ts.0` replaces the members of the timestamp");
        let old = on("5.10");
        let costs: Vec<_> = old.iter().filter_map(|field| field.cost).collect();
        assert!(costs.len() == 2 && costs[0].contains("nothing") && costs[1].contains("filter"), "{old:?}");
    }
}
