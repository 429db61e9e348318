//! Where tests run, and whether they can.

use std::{
    env,
    fs::{File, OpenOptions},
    io::Write as _,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use undercurrent::kernel::btf::{self, Btf, VMLINUX};

/// Held by the one test that runs: what they read is counted for the whole machine, whichever binary they are in.
pub struct Alone(#[expect(dead_code, reason = "the lock goes with the file")] File);

/// Waits for its turn; `None`, said as the runner wants it, where the test cannot run.
pub fn alone(test: &str) -> Option<Alone> {
    if !rustix::process::geteuid().is_root() {
        skip(&format!("{test}: it loads programs into the kernel, which takes root"));
        return None;
    }
    let path = env::temp_dir().join("undercurrent-kernel-tests.lock");
    let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    Some(Alone(file))
}

/// Tells the runner that this test showed nothing, and why.
pub fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = env::var_os("UNDERCURRENT_SKIPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "SKIPPED: {reason}").unwrap();
    }
}

/// Makes this thread, and those that it starts from now on, run on one CPU.
pub fn on_one_cpu() {
    let allowed = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).unwrap());
    sched_setaffinity(None, &one).unwrap();
}

/// The virtual machine's kernel, by its short name; absent on a real machine.
pub fn virtual_machine() -> Option<String> {
    env::var("UNDERCURRENT_VM").ok()
}

/// How many arguments this kernel passes at a tracepoint.
pub fn arguments(tracepoint: &str) -> usize {
    let raw = btf::read(VMLINUX).unwrap();
    Btf::parse(&raw).unwrap().tracepoint(tracepoint).map_or(0, |found| found.parameters.len())
}

/// Whether this kernel has a function.
pub fn function(name: &str) -> bool {
    let raw = btf::read(VMLINUX).unwrap();
    Btf::parse(&raw).unwrap().function(name).is_some()
}

/// Whether this kernel says how often it left a kprobe out for another one's sake, as it does from 6.7 on.
pub fn tells_left_out() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(7))
}

/// Whether programs may keep with a socket who reads it, as they may from 5.11 on.
pub fn stores_readers() -> bool {
    function("bpf_sk_storage_get_tracing")
}

/// A time that a real machine needs, as long as this one needs it: an emulated processor is slow.
pub fn patience(native: Duration) -> Duration {
    if virtual_machine().is_some() { native * 10 } else { native }
}

/// How many of so many events programs may not have seen: the hardened host's kernel leaves out a program now and then where it
/// interrupts the sidecar, and does not count that.
pub fn skipped(of: usize) -> f64 {
    if virtual_machine().is_some() { 0.0 } else { 0.05 * of as f64 }
}

/// An interval that leaves this machine time for something else than snapshots: on an emulated processor one takes a
/// while.
pub fn often() -> &'static str {
    if virtual_machine().is_some() { "500ms" } else { "200ms" }
}

/// Waits until a condition yields something.
pub fn wait_for<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
