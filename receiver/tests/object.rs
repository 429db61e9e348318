//! Loads the committed object into the running kernel.

mod support;

use std::io;

use aya::{
    Btf, Ebpf, EbpfError,
    maps::MapError,
    programs::{BtfTracePoint, ProgramError},
};
use undercurrent::loader::{btf, constants::Constants, fields, loader, object::OBJECT};

/// Creates the object's maps with the number 1 for these settings. Returns `None`, and reports a skip, if the kernel
/// denies it.
fn load(settings: &[&str]) -> Option<Ebpf> {
    let raw = btf::read("vmlinux").expect("the kernel has BTF");
    let types = btf::Btf::parse(&raw).expect("sound BTF");
    let fields = fields::resolve(&types, &fields::declared(OBJECT).expect("a sound object"));
    let mut constants = Constants::new(OBJECT, &fields).expect("a sound object");
    for setting in settings {
        constants.set(setting, 1).expect("a declared setting");
    }
    let mut object = OBJECT.to_vec();
    constants.write(&mut object).expect("declared placeholders");
    match loader::without_types().allow_unsupported_maps().load(&object) {
        Ok(ebpf) => Some(ebpf),
        Err(EbpfError::MapError(MapError::CreateError { io_error, .. }))
            if io_error.kind() == io::ErrorKind::PermissionDenied =>
        {
            support::skip("creating maps needs CAP_BPF: run as root");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Loading the object creates all of its maps. Programs load later, with their hooks.
#[test]
fn the_kernel_takes_every_map() {
    let Some(ebpf) = load(&[]) else { return };
    assert!(ebpf.maps().count() > 0, "the object has no maps");
    for (name, program) in ebpf.programs() {
        assert!(program.fd().is_err(), "{name} was loaded with the object");
    }
    assert!(ebpf.programs().count() > 0, "the object has no programs");
}

/// Returns the bytes of `softirq_entry` after the verifier. Returns `None`, and reports a skip, if the kernel
/// denies it.
fn verified_size(settings: &[&str]) -> Option<u32> {
    const HOOK: &str = "softirq_entry";
    let types = Btf::from_sys_fs().expect("the kernel has BTF");
    let mut ebpf = load(settings)?;
    let program: &mut BtfTracePoint =
        ebpf.program_mut(HOOK).and_then(|program| program.try_into().ok()).expect("a tracepoint program");
    match program.load(HOOK, &types) {
        Ok(()) => Some(program.info().expect("program info").size_translated().expect("a size")),
        Err(ProgramError::LoadError { io_error, .. }) if io_error.kind() == io::ErrorKind::PermissionDenied => {
            support::skip("loading tracing programs needs CAP_BPF and CAP_PERFMON: run as root");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// The switches of signals are constants, so the verifier removes the handlers of signals that are off (dead-code elimination).
#[test]
fn handlers_of_disabled_signals_are_removed() {
    let Some(none) = verified_size(&[]) else { return };
    // 1 is the number of exact softirqs, and of an enabled signal.
    let (cpu, wait) = ("network_cpu.exact", "signal.softirq_wait");
    let [cpu, wait, both] =
        [&[cpu][..], &[wait], &[cpu, wait]].map(|settings| verified_size(settings).expect("the first program loaded"));
    // With both signals, the program at the exit records the wait.
    assert!(none < cpu && cpu < both && both < wait, "{none}, {cpu}, {wait}, {both} bytes");
}
