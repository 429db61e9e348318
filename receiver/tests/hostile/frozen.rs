//! Processes that block every reader of their environment.
//!
//! `access_remote_vm()` holds a process's `mmap_lock` while it waits for the file system behind a page. The
//! attacker blocks it in a read of the attacker's own memory, and queues a writer of the lock: all later readers
//! wait behind the writer. Since Linux 4.17 the kernel reads no environment from a page of a file (`FOLL_ANON` in
//! `environ_read()`).

use std::{
    fs::File,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
    process::Signal,
};

use crate::support::{
    attached::{assert_nothing_left, attached},
    fuse::Fuse,
    line::Line,
    player::{self, Player},
    sidecar::Sidecar,
    status::{part, stuck},
    surroundings::{alone, often, patience, skip, wait_for},
    tree::Tree,
};

/// A process with an environment that blocks readers.
pub const ROLE: &str = "frozen";
/// The variable with the file that a frozen process maps.
const MAPPED: &str = "UNDERCURRENT_TEST_MAPPED";
/// More processes than the reader has threads.
const MANY: usize = 40;
/// More processes than two readers have threads.
const VERY_MANY: usize = 70;
/// The longest time from the start of a service to its name during an attack.
const NAMED: Duration = Duration::from_secs(6);
/// The least number of snapshots during an attack.
const SNAPSHOTS: usize = 5;
/// The longest time between two snapshots.
const LONGEST: Duration = Duration::from_secs(1);

/// Holds the lock of its memory map in one thread, and waits for the lock as a writer in another.
pub fn play() {
    let (file, memory) =
        (File::open(std::env::var_os(MAPPED).unwrap()).unwrap(), File::open("/proc/self/mem").unwrap());
    let (anywhere, page) = (std::ptr::null_mut(), rustix::param::page_size());
    // SAFETY: the mapping is new, and no reference points into it.
    let address = unsafe { mmap(anywhere, page, ProtFlags::READ, MapFlags::PRIVATE, file.as_fd(), 0) }.unwrap();
    let offset = address.expose_provenance() as u64;
    player::serve(|_| {
        let memory = memory.try_clone().unwrap();
        thread::spawn(move || memory.read_at(&mut [0], offset));
        loop {
            // SAFETY: the kernel chooses an unused address for the new mapping.
            let mapped = unsafe { mmap_anonymous(anywhere, page, ProtFlags::READ, MapFlags::PRIVATE) }.unwrap();
            // SAFETY: no reference points into this memory.
            unsafe { munmap(mapped, page) }.unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Frozen processes.
struct Frozen {
    fuse: Fuse,
    players: Vec<Player>,
}

impl Frozen {
    /// Returns `None`, and reports a skip, on a machine without FUSE.
    fn prepare(test: &str) -> Option<Self> {
        match Fuse::mount() {
            Ok(fuse) => Some(Self { fuse, players: Vec::new() }),
            Err(error) => {
                skip(&format!("{test}: FUSE: {error}"));
                None
            }
        }
    }

    /// Starts a frozen process in a new cgroup.
    fn start(&mut self, tree: &Tree, cgroup: &str) {
        let (file, before) = (self.fuse.file(self.players.len()), self.fuse.waiting());
        let mut player = Player::start(ROLE, &tree.make(cgroup), &[(MAPPED, file.to_str().unwrap())]);
        player.request("freeze");
        self.players.push(player);
        let fuse = &self.fuse;
        wait_for("a process to freeze", patience(Duration::from_secs(5)), || (fuse.waiting() > before).then_some(()));
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A process that waits for the file system cannot be killed.
        self.fuse.release();
        self.players.clear();
    }
}

/// Waits until threads of the reader are blocked, and returns their number.
fn blocked(sidecar: &Sidecar) -> usize {
    wait_for("the reader to block", patience(Duration::from_secs(15)), || {
        Some(stuck(part(sidecar.pid(), "uc-reader")?)).filter(|count| *count > 0)
    })
}

/// Starts a process that sets the name of its service, and waits until the sidecar reports the name.
fn a_service_is_named(sidecar: &Sidecar, tree: &Tree, name: &str) {
    let cgroup = format!("{name}.service");
    let _player = Player::start("echo", &tree.make(&cgroup), &[("OTEL_SERVICE_NAME", name)]);
    wait_for("the name of a service", patience(Duration::from_secs(20)), || {
        let line = sidecar.snapshot();
        let is = |point: &&_| tree.is(point, &cgroup);
        line.points
            .iter()
            .filter(is)
            .any(|point| point.resource.get("service.name").is_some_and(|of| of == name))
            .then_some(())
    });
}

/// The longest time between two snapshots.
fn longest_gap(lines: &[Line]) -> Duration {
    let gaps = lines.windows(2).map(|pair| Duration::from_nanos(pair[1].time - pair[0].time));
    gaps.max().unwrap()
}

/// Ends the sidecar, and checks that this takes no longer than without an attack.
fn ends_in_order(mut sidecar: Sidecar) {
    (0..SNAPSHOTS).for_each(|_| drop(sidecar.snapshot()));
    let gap = longest_gap(&sidecar.lines());
    assert!(gap <= patience(LONGEST), "{gap:?} between two snapshots");
    let attached = attached(sidecar.pid());
    let (status, took) = sidecar.signal(Signal::TERM);
    eprintln!("longest gap {gap:?}; ended with {status} after {took:?}");
    assert!(status.success(), "{status}");
    assert!(took <= patience(Duration::from_secs(2)), "{took:?}");
    assert_nothing_left(&attached, patience(Duration::from_secs(1)));
}

#[test]
fn a_process_that_blocks_readers_of_its_environment_delays_no_other_workload() {
    const TEST: &str = "a blocked environment";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let Some(mut frozen) = Frozen::prepare(TEST) else { return };
    let sidecar = Sidecar::start(often());
    frozen.start(&tree, "frozen.service");
    blocked(&sidecar);
    let start = Instant::now();
    a_service_is_named(&sidecar, &tree, "healthy");
    eprintln!("named after {:?}", start.elapsed());
    assert!(blocked(&sidecar) > 0);
    for name in ["undercurrent", "uc-loader"] {
        assert_eq!(stuck(part(sidecar.pid(), name).unwrap()), 0, "{name}");
    }
    ends_in_order(sidecar);
}

#[test]
fn a_reader_with_every_thread_blocked_is_replaced() {
    const TEST: &str = "a blocked reader";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let Some(mut frozen) = Frozen::prepare(TEST) else { return };
    (0..MANY).for_each(|n| frozen.start(&tree, &format!("frozen-{n}.service")));
    let sidecar = Sidecar::start(often());
    let first = part(sidecar.pid(), "uc-reader").unwrap();
    sidecar.line("another reader", |line| {
        line.total("undercurrent.lost", &[("undercurrent.reason", "reader_replaced")]) >= 1.0
    });
    assert_ne!(part(sidecar.pid(), "uc-reader").unwrap(), first);
    ends_in_order(sidecar);
}

#[test]
fn a_service_is_named_soon_beside_many_frozen_workloads() {
    const TEST: &str = "many frozen workloads";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let Some(mut frozen) = Frozen::prepare(TEST) else { return };
    (0..VERY_MANY).for_each(|n| frozen.start(&tree, &format!("frozen-{n}.service")));
    let sidecar = Sidecar::start(often());
    let lost = |line: &Line, reason| line.total("undercurrent.lost", &[("undercurrent.reason", reason)]);
    sidecar.line("another reader", |line| lost(line, "reader_replaced") >= 1.0);
    (0..SNAPSHOTS).for_each(|_| drop(sidecar.snapshot()));
    let start = Instant::now();
    a_service_is_named(&sidecar, &tree, "healthy");
    let took = start.elapsed();
    assert!(took <= patience(NAMED), "{took:?}");
    let line = wait_for("every frozen process to be read", patience(Duration::from_secs(20)), || {
        Some(sidecar.snapshot()).filter(|line| lost(line, "environment_timeout") >= VERY_MANY as f64)
    });
    let replaced = lost(&line, "reader_replaced");
    eprintln!("named after {took:?}; the reader was replaced {replaced} times");
    // Each workload backs off after its first read.
    assert!((1.0..=4.0).contains(&replaced), "{replaced}");
    let later = (0..2 * SNAPSHOTS).map(|_| sidecar.snapshot()).last().unwrap();
    assert_eq!(lost(&later, "environment_timeout"), VERY_MANY as f64);
    assert_eq!(lost(&later, "reader_replaced"), replaced);
    ends_in_order(sidecar);
}

#[test]
fn the_containers_in_a_container_block_two_threads_of_the_reader_at_most() {
    const TEST: &str = "blocked environments in one container";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let Some(mut frozen) = Frozen::prepare(TEST) else { return };
    let container = |n: usize| format!("docker-{n:064x}.scope");
    for n in 1..=4 {
        frozen.start(&tree, &format!("{}/{}", container(0), container(n)));
    }
    let sidecar = Sidecar::start(often());
    a_service_is_named(&sidecar, &tree, "healthy");
    // One thread for the container, and one for all containers in it.
    assert!((1..=2).contains(&blocked(&sidecar)));
    ends_in_order(sidecar);
}
