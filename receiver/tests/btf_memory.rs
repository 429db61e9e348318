//! Measures the memory that reading the running kernel's BTF takes, at the allocator. This is a separate test
//! binary because the peak belongs to the whole process.

use peak_alloc::PeakAlloc;
use undercurrent::loader::{
    btf::{Btf, Target, VMLINUX, read},
    fields,
    object::OBJECT,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MEGABYTE: usize = 1 << 20;

#[test]
fn reading_btf_takes_little_memory_besides_its_bytes() {
    let raw = match read(VMLINUX) {
        Ok(raw) => raw,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let declarations = fields::declared(OBJECT).expect("a sound object");
    let targets = [Target::Function("tcp_v4_rcv"), Target::Function("udpv6_rcv"), Target::Tracepoint("softirq_entry")];

    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let btf = Btf::parse(&raw).expect("sound BTF");
    let resolved = fields::resolve(&btf, &declarations);
    let sparse = btf.sparse(&targets);
    let reading = ALLOCATOR.peak_usage() - before;
    assert_eq!(resolved.len(), declarations.len());
    drop(btf);
    drop(raw);

    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let aya = sparse.into_aya().expect("sound BTF");
    let loading = ALLOCATOR.peak_usage() - before;
    drop(aya);

    eprintln!("reading took {reading} bytes beside the raw ones, aya {loading} beside the sparse ones");
    assert!(reading < 8 * MEGABYTE, "reading took {reading} bytes");
    // A growing vector holds aya's types twice at the last reallocation.
    assert!(loading < 16 * MEGABYTE, "aya took {loading} bytes");
}
