//! Parses any bytes as the kernel's BTF and as a module's BTF: no panic, no endless search.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use undercurrent_loader::{
    btf::{Btf, Target, TypeId},
    drops, fields,
};

static KERNEL: LazyLock<Btf<'static>> =
    LazyLock::new(|| Btf::parse(include_bytes!("../../fixtures/btf/6.12.btf")).expect("sound BTF"));
static FIELDS: LazyLock<Vec<fields::FieldDeclaration>> =
    LazyLock::new(|| fields::declared(include_bytes!("../../ebpf/undercurrent.bpf.o")).expect("a sound object"));
const FUNCTIONS: [&str; 3] = ["tcp_v4_rcv", "tcp_recv_timestamp", "__udp_enqueue_schedule_skb"];
const TRACEPOINTS: [&str; 2] = ["softirq_entry", "skb_copy_datagram_iovec"];

fuzz_target!(|raw: &[u8]| {
    if let Ok(btf) = Btf::parse(raw) {
        exercise(&btf);
    }
    if let Ok(btf) = Btf::parse_module(raw, &KERNEL) {
        exercise(&btf);
    }
});

fn exercise(btf: &Btf<'_>) {
    let resolved = fields::resolve(btf, &FIELDS);
    assert_eq!(resolved.len(), FIELDS.len());
    let _ = btf.member("scm_timestamping_internal", "ts.2.tv_nsec");
    for id in 0..u32::try_from(btf.count()).unwrap_or(u32::MAX) {
        let _ = btf.size(TypeId(id));
    }
    for name in FUNCTIONS {
        let _ = btf.function(name);
    }
    for name in TRACEPOINTS {
        let _ = btf.tracepoint(name);
    }
    let _ = drops::reasons(btf);
    let targets: Vec<Target<'_>> =
        FUNCTIONS.map(Target::Function).into_iter().chain(TRACEPOINTS.map(Target::Tracepoint)).collect();
    let sparse = btf.sparse(&targets);
    // The reduced BTF is valid for any input.
    let reread = Btf::parse(sparse.as_bytes()).expect("sound BTF");
    for name in FUNCTIONS {
        if let Some(function) = btf.function(name) {
            assert_eq!(reread.function(name).map(|same| same.id), Some(function.id));
        }
    }
    sparse.into_aya().expect("sound BTF");
}
