//! The environment of tests, and requirements for them.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::Write as _,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity},
};
use undercurrent::loader::btf::{self, Btf, VMLINUX};

/// A lock for the one running test. Kernel counters cover the whole machine, so tests of all binaries run one at a
/// time.
pub struct Alone(#[expect(dead_code, reason = "the lock goes with the file")] File);

/// Waits for the lock. Returns `None`, and reports a skip, if the test cannot run on this machine.
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

/// Reports to the runner that the test was skipped, with the reason.
pub fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = env::var_os("UNDERCURRENT_SKIPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "SKIPPED: {reason}").unwrap();
    }
}

/// Returns the CPUs that this thread may run on.
pub fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Pins a thread to a CPU; this thread, and threads and processes that it starts later, if `thread` is `None`.
pub fn pin(thread: Option<Pid>, cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(thread, &one).unwrap();
}

/// Pins this thread, and threads and processes that it starts later, to the last CPU.
pub fn on_one_cpu() {
    pin(None, *cpus().last().unwrap());
}

/// Pins this thread, and threads and processes that it starts later, to the first CPU.
pub fn on_first_cpu() {
    pin(None, cpus()[0]);
}

/// Returns the short name of the virtual machine's kernel; `None` on a real machine.
pub fn virtual_machine() -> Option<String> {
    env::var("UNDERCURRENT_VM").ok()
}

/// Returns the number of arguments of a tracepoint in this kernel.
pub fn arguments(tracepoint: &str) -> usize {
    let raw = btf::read(VMLINUX).unwrap();
    Btf::parse(&raw).unwrap().tracepoint(tracepoint).map_or(0, |found| found.parameters.len())
}

/// Returns true if this kernel has a function.
pub fn function(name: &str) -> bool {
    let raw = btf::read(VMLINUX).unwrap();
    Btf::parse(&raw).unwrap().function(name).is_some()
}

/// Returns true if this kernel counts the kprobe runs that it skips because another kprobe runs (6.7 and later).
pub fn tells_left_out() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(7))
}

/// Returns true if programs can store the reader of a socket in socket storage (5.11 and later).
pub fn stores_readers() -> bool {
    function("bpf_sk_storage_get_tracing")
}

/// Returns true if the security module of this kernel has netfilter hooks for packets that leave, as SELinux and Smack have.
pub fn security_filters_output() -> bool {
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap();
    ["selinuxfs", "smackfs"].iter().any(|name| filesystems.contains(name))
}

/// Scales the time limit of a real machine to this machine: an emulated processor is slow.
pub fn patience(native: Duration) -> Duration {
    if virtual_machine().is_some() { native * 10 } else { native }
}

/// Returns the number of events that programs may miss out of `of`. The hardened host's kernel occasionally skips
/// a program when it interrupts the sidecar, and does not count it.
pub fn skipped(of: usize) -> f64 {
    if virtual_machine().is_some() { 0.0 } else { 0.05 * of as f64 }
}

/// Returns a short interval that leaves CPU time for the test. On an emulated processor a snapshot takes a while.
pub fn often() -> &'static str {
    if virtual_machine().is_some() { "500ms" } else { "200ms" }
}

/// The factor by which a wait may exceed its limit on a quiet machine. Other programs can take the CPUs for a while, and the
/// runner limits the whole test. A wait that succeeds takes no longer.
const SLACK: u32 = 8;

/// Waits until a condition returns a value. `limit` is the limit on a quiet machine.
pub fn wait_for<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let (start, limit) = (Instant::now(), limit * SLACK);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < limit, "timeout after {limit:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
