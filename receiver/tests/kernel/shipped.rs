//! The sidecar under the capabilities of each shipped file.

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
};

use caps::{CapSet, Capability, CapsHashSet};
use serde_json::Value;

use super::support::{
    shipped::{self, Granted},
    sidecar::command,
    surroundings::{alone, skip},
};

const NOBODY: u32 = 65534;

/// Restricts this process before it executes the sidecar.
fn restrict(as_root: bool, granted: &CapsHashSet) -> io::Result<()> {
    for capability in caps::all().difference(granted) {
        caps::drop(None, CapSet::Bounding, *capability).map_err(io::Error::other)?;
    }
    if as_root {
        return Ok(());
    }
    let done = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the call takes integers only.
    done(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })?;
    // SAFETY: a list of zero groups is valid with a null pointer, because the kernel reads no element.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: the call takes integers only.
    done(unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) })?;
    // SAFETY: the call takes integers only.
    done(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) })?;
    [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient]
        .into_iter()
        .try_for_each(|set| caps::set(None, set, granted))
        .map_err(io::Error::other)
}

/// Returns the report of `doctor` with these capabilities. The first process could not drop more capabilities than it has.
fn report(binary: &Path, as_root: bool, granted: &CapsHashSet) -> Value {
    report_with(binary, as_root, granted, &[])
}

fn report_with(binary: &Path, as_root: bool, granted: &CapsHashSet, arguments: &[&str]) -> Value {
    let mut doctor = command(binary);
    let held: CapsHashSet = granted.intersection(&caps::read(None, CapSet::Permitted).unwrap()).copied().collect();
    // SAFETY: the closure calls the kernel and the allocator. glibc resets the allocator's locks after a fork.
    unsafe { doctor.pre_exec(move || restrict(as_root, &held)) };
    let output = doctor.args(["doctor", "--json"]).args(arguments).current_dir("/").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn statuses(report: &Value) -> BTreeMap<String, String> {
    let signals = report["signals"].as_array().unwrap().iter();
    let text = |signal: &Value, key: &str| signal[key].as_str().unwrap().to_owned();
    signals.map(|signal| (text(signal, "signal"), text(signal, "status"))).collect()
}

/// Copies the sidecar to a folder that every user can access.
fn installed() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("undercurrent");
    fs::copy(super::support::sidecar::BINARY, &binary).unwrap();
    for path in [folder.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (folder, binary)
}

/// Each signal has the status that it has with every capability.
#[test]
fn shipped_files_grant_what_every_signal_needs() {
    let Some(_alone) = alone("the capabilities of shipped files") else { return };
    let (_folder, binary) = installed();
    let expected = statuses(&report(&binary, true, &caps::all()));
    for Granted { file, as_root, capabilities } in shipped::all() {
        assert!(capabilities.len() > 4, "{file}: {capabilities:?}");
        let granted: CapsHashSet = capabilities.iter().map(|name| name.parse().unwrap()).collect();
        let report = report(&binary, as_root, &granted);
        assert_eq!(statuses(&report), expected, "{file}: {report:#}");
        assert_eq!(report["lacks"], Value::Array(Vec::new()), "{file}");
    }
}

/// A signal that is unavailable for lack of a capability has the capability among the remedies.
#[test]
fn a_missing_capability_is_named_with_the_signals_that_need_it() {
    const TEST: &str = "missing capabilities";
    let Some(_alone) = alone(TEST) else { return };
    let setting = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().parse::<i32>().unwrap_or(0);
    let hides = setting("/proc/sys/kernel/kptr_restrict") == 1 || setting("/proc/sys/kernel/perf_event_paranoid") > 1;
    if !hides {
        return skip(&format!("{TEST}: this kernel shows the addresses of its functions to every user"));
    }
    let (_folder, binary) = installed();
    let granted: CapsHashSet = HashSet::from([Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_NET_ADMIN]);
    let report = report(&binary, false, &granted);
    assert_eq!(statuses(&report)["network_functions"], "unavailable", "{report:#}");
    let (lacks, grant) = (report["lacks"].to_string(), report["grant"].to_string());
    for name in ["CAP_SYSLOG", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"] {
        assert!(lacks.contains(name) && grant.contains(name), "{name}: {lacks} {grant}");
    }
    assert!(lacks.contains("`network_functions`") && grant.contains("add: [DAC_READ_SEARCH"), "{lacks} {grant}");
}

#[test]
fn a_worker_that_would_stay_root_is_refused_unless_it_is_accepted() {
    let Some(_alone) = alone("a worker that stays root") else { return };
    let (folder, binary) = installed();
    let granted: CapsHashSet =
        caps::all().difference(&HashSet::from([Capability::CAP_SETUID, Capability::CAP_SETGID])).copied().collect();
    let refused = report(&binary, true, &granted);
    assert_eq!(refused["verdict"], "unusable", "{refused:#}");
    let (lacks, reason) = (refused["lacks"].to_string(), refused["reason"].to_string());
    assert!(lacks.contains("CAP_SETUID") && lacks.contains("separation.root_worker"), "{lacks}");
    assert!(reason.contains("CAP_SETUID"), "{reason}");
    let accepting = folder.path().join("config.yaml");
    fs::write(&accepting, "separation: {root_worker: true}\n").unwrap();
    let accepted = report_with(&binary, true, &granted, &["--config", accepting.to_str().unwrap()]);
    assert_ne!(accepted["verdict"], "unusable", "{accepted:#}");
    let worker = accepted["parts"].as_array().unwrap().iter().find(|part| part["part"] == "worker").unwrap();
    assert_eq!(worker["user"], 0);
}
