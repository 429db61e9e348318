//! Memory and addresses of the parts: what a part that somebody has taken over learns about the others.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::{fs::FileExt as _, process::CommandExt as _},
    process::Command,
};

use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use crate::support::{
    processes::family,
    sidecar::{BINARY, Sidecar},
    status::part,
    surroundings::{alone, often},
};

/// The parts that execute the program again.
const PARTS: [&str; 3] = ["uc-supervisor", "uc-loader", "uc-reader"];
/// A token that the collector requires.
const TOKEN: &str = "0123-a-token-that-nobody-else-has-4567";

fn maps(process: u32) -> Vec<MemoryMap> {
    Process::new(process.cast_signed()).unwrap().maps().unwrap().into_iter().collect()
}

/// Returns the lowest address of the program in a process.
fn base(process: u32) -> u64 {
    let program = fs::read_link(format!("/proc/{process}/exe")).unwrap();
    let of_program = |map: &MemoryMap| matches!(&map.pathname, MMapPath::Path(path) if *path == program);
    maps(process).iter().filter(|map| of_program(map)).map(|map| map.address.0).min().unwrap()
}

#[test]
fn every_part_has_addresses_of_its_own() {
    let Some(_alone) = alone("addresses of the parts") else { return };
    let setting = fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap();
    assert_ne!(setting.trim(), "0", "this machine does not randomize addresses");
    let sidecar = Sidecar::start(often());
    sidecar.snapshot();
    let all = family(sidecar.pid());
    assert_eq!(all.len(), 1 + PARTS.len());
    let bases: BTreeSet<u64> = all.iter().copied().map(base).collect();
    assert_eq!(bases.len(), all.len(), "{bases:x?}");
    sidecar.stop();
}

/// Returns true if the memory of a process has a text. Memory that it cannot write is that of files.
fn holds(process: u32, text: &str) -> bool {
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let is_readable = |map: &&MemoryMap| map.perms.contains(MMPermissions::READ | MMPermissions::WRITE);
    // Some mappings cannot be read by this file, for example those of devices.
    let has = |map: &MemoryMap| {
        let mut bytes = vec![0; usize::try_from(map.address.1 - map.address.0).unwrap()];
        memory.read_exact_at(&mut bytes, map.address.0).is_ok()
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    maps(process).iter().filter(is_readable).any(has)
}

#[test]
fn only_the_worker_has_the_token_of_the_collector() {
    let Some(_alone) = alone("the token of the collector") else { return };
    let header = format!("authorization=Bearer {TOKEN}");
    let variables =
        [("OTEL_EXPORTER_OTLP_HEADERS", header.as_str()), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:1")];
    let sidecar = Sidecar::start_with(often(), &["--output", "otlp"], &variables);
    assert!(holds(sidecar.pid(), TOKEN), "the search finds nothing");
    for name in PARTS {
        let process = part(sidecar.pid(), name).unwrap();
        assert!(!holds(process, TOKEN), "{name}");
        assert_eq!(fs::read(format!("/proc/{process}/environ")).unwrap(), b"", "{name}");
    }
    sidecar.stop();
}

#[test]
fn a_part_that_a_user_starts_says_how_to_start_the_sidecar() {
    for name in PARTS {
        // Standard input is no channel either.
        for arguments in [&[][..], &["0"], &["3", "4"], &["x"]] {
            let output = Command::new(BINARY).arg0(name).args(arguments).env_clear().output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{name} {arguments:?}");
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.starts_with(&format!("{name} failed: ")) && text.contains("run `undercurrent`"), "{text}");
        }
    }
}
