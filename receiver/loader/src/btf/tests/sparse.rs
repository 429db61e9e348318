//! The sparse BTF keeps the kernel's type ids.

use aya::{Btf as AyaBtf, Endianness};
use aya_obj::btf::BtfKind;

use super::{
    super::{Kind, Target, function::tracepoint_type},
    FUNCTIONS, KERNELS, TRACEPOINTS, on_every_kernel, oracle, parse, targets,
};

#[test]
fn aya_finds_the_type_ids_of_the_full_btf() {
    on_every_kernel(|release, raw| {
        let whole = AyaBtf::parse(raw, Endianness::default()).expect("aya reads the whole BTF");
        let reduced = parse(raw).sparse(&targets()).into_aya().expect("aya reads the sparse BTF");
        let same = |name: &str, kind| {
            let id = |btf: &AyaBtf| btf.id_by_type_name_kind(name, kind).expect("an existing target");
            assert_eq!(id(&reduced), id(&whole), "{name} on {release}");
        };
        FUNCTIONS.iter().for_each(|name| same(name, BtfKind::Func));
        TRACEPOINTS.iter().for_each(|name| same(&tracepoint_type(name), BtfKind::Typedef));
    });
}

#[test]
fn sparse_btf_is_readable_and_complete() {
    on_every_kernel(|release, raw| {
        let whole = parse(raw);
        let sparse = whole.sparse(&targets());
        let reread = parse(sparse.as_bytes());
        for name in FUNCTIONS {
            assert_eq!(reread.find(name, Kind::Function), whole.find(name, Kind::Function), "{name} on {release}");
            assert!(reread.function(name).is_some(), "{name} refers to a prototype on {release}");
        }
        assert_eq!(oracle::types(sparse.as_bytes()).get().len() + 1, reread.count());
        assert!(reread.count() <= whole.count() + 1);
    });
}

#[test]
fn missing_and_repeated_targets_are_skipped() {
    let whole = parse(KERNELS[0].raw);
    let one = whole.sparse(&[Target::Function("tcp_v4_rcv")]);
    let nonsense = Target::Function("no_such_function");
    let more = whole.sparse(&[Target::Function("tcp_v4_rcv"), nonsense, Target::Function("tcp_v4_rcv")]);
    assert_eq!(one, more);
    let none = whole.sparse(&[nonsense]);
    assert!(none.into_aya().expect("sound BTF").id_by_type_name_kind("tcp_v4_rcv", BtfKind::Func).is_err());
}
