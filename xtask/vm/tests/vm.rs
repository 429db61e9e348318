//! Boots guests. Needs root, about ten seconds per guest, and on a fresh machine some downloads:
//! `cargo test -p xtask-vm --test vm -- --ignored`.
#![expect(clippy::unwrap_used, reason = "a panic reports the failed line")]

use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask-vm")).arg("vm").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Returns a value from the output of `vm-guest.sh`, which prints lines `name=value`.
fn value<'a>(output: &'a Output, name: &str) -> &'a str {
    let value = stdout(output).lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("the guest did not print {name}: {output:?}"))
}

fn number(output: &Output, name: &str) -> u64 {
    value(output, name).parse().unwrap()
}

/// Checks that packets passed the sending driver, and NAPI and GRO of the receiving interface.
fn assert_wire_works(output: &Output) {
    const SENT: u64 = 1 << 20;
    assert_eq!(number(output, "received"), SENT, "{output:?}");
    let packets = number(output, "packets");
    assert!(packets >= SENT / 1500, "the driver counted {packets} packets for {SENT} bytes");
    assert!(number(output, "interrupts") > 0, "no interrupt of the receiving interface");
    assert!(number(output, "polled") >= packets / 64, "NAPI polled too little for {packets} packets");
    let delivered = number(output, "delivered");
    assert!(0 < delivered && delivered < packets, "GRO made {delivered} of {packets} packets");
}

#[test]
#[ignore = "boots a virtual machine: needs root"]
fn vm_6_12_runs_the_hosts_programs_and_wires_two_interfaces() {
    let share = tempfile::tempdir().unwrap();
    let script = concat!(env!("UNDERCURRENT_WORKSPACE"), "/xtask/vm/tests/vm-guest.sh");
    let folder = share.path().to_str().expect("a temporary folder's name is text");
    let output = xtask(&["--kernel", "6.12", "--timeout", "120", "--share", folder, "--", "sh", script, "a b"]);

    assert_eq!(output.status.code(), Some(7), "the command's own status: {output:?}");
    assert!(value(&output, "release").starts_with("6.12."), "{output:?}");
    assert_eq!(value(&output, "argument"), "a b");
    assert_eq!(std::fs::read_to_string(share.path().join("result")).unwrap(), "kept\n");
    assert!(std::str::from_utf8(&output.stderr).unwrap().lines().any(|line| line == "a complaint"), "{output:?}");
    assert_wire_works(&output);

    let btf = share.path().join("btf");
    let written = xtask(&["btf", "--kernel", "6.12", "-o", btf.to_str().expect("text")]);
    assert!(written.status.success(), "{written:?}");
    let (written, running) = (std::fs::read(&btf).unwrap(), std::fs::read(share.path().join("running-btf")).unwrap());
    assert!(written == running, "{} bytes of BTF were extracted, {} are in the guest", written.len(), running.len());
}

#[test]
#[ignore = "boots a virtual machine: needs root"]
fn vm_icount_wires_two_interfaces() {
    let script = concat!(env!("UNDERCURRENT_WORKSPACE"), "/xtask/vm/tests/vm-guest.sh");
    let share = tempfile::tempdir().unwrap();
    let folder = share.path().to_str().expect("a temporary folder's name is text");
    let options = ["--kernel", "6.12", "--icount", "--timeout", "240", "--share", folder];
    let output = xtask(&[&options[..], &["--", "sh", script, "-"]].concat());
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(number(&output, "cpus"), 1);
    assert_wire_works(&output);
}

#[test]
#[ignore = "boots a virtual machine: needs root"]
fn vm_reports_a_panic_and_a_timeout() {
    let died = xtask(&["--kernel", "6.12", "--timeout", "120", "--", "echo c > /proc/sysrq-trigger"]);
    assert_eq!(died.status.code(), Some(125), "{died:?}");
    assert!(String::from_utf8_lossy(&died.stderr).contains("Kernel panic"), "{died:?}");

    let slow = xtask(&["--kernel", "6.12", "--timeout", "1", "--", "sleep 1000"]);
    assert_eq!(slow.status.code(), Some(124), "{slow:?}");
}
