//! Random requests to the real loader, reader, writer and supervisor, through the channels of a compromised worker.
//!
//! The worker is stopped, and the test sends and receives in its place. Requests that do not decode end a part in order; the fuzz target
//! `messages` tests the decoder. All other requests must be answered.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open},
};
use serde::de::DeserializeOwned;
use undercurrent::{
    kernel::messages::Request,
    reader::{FileRequest, ForeignRequest},
};

use crate::support::{
    attached::{assert_nothing_left, attached},
    processes::family,
    random::Random,
    sidecar::Sidecar,
    status::part,
    surroundings::{alone, patience},
};

/// The longest time until a part answers a request. Attaching takes longest.
const ANSWER: Duration = Duration::from_secs(120);
/// More variants than any protocol has.
const VARIANTS: u64 = 20;
/// The longest random request, in bytes.
const LONGEST: u64 = 64;
/// The requests of the supervisor: to start the loader, the writer and a reader.
const STARTS: [u8; 3] = [0, 1, 2];
/// The number of readers that the supervisor starts in a minute.
const READERS: usize = 10;

/// Returns the sockets of a process by descriptor, with their inodes.
fn sockets(process: u32) -> BTreeMap<i32, u64> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, inode))
    };
    descriptors.filter_map(socket).collect()
}

/// Returns the other end of each connected Unix socket of this machine, by inode.
fn peers() -> BTreeMap<u64, u64> {
    let list = Command::new("ss").arg("-xaH").output().unwrap();
    let peer = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some((words.get(5)?.parse().ok()?, words.get(7)?.parse().ok()?))
    };
    String::from_utf8(list.stdout).unwrap().lines().filter_map(peer).collect()
}

/// Returns duplicates of the worker's channels to a part. The arguments of the part are its descriptors of these channels.
fn channels(worker: u32, part: u32) -> Vec<UnixStream> {
    let (of_worker, of_part, peers) = (sockets(worker), sockets(part), peers());
    let handle = pidfd_open(Pid::from_raw(worker.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
    let arguments = fs::read_to_string(format!("/proc/{part}/cmdline")).unwrap();
    let channel = |argument: &str| {
        let peer = peers[&of_part[&argument.parse().unwrap()]];
        let (descriptor, _) = of_worker.iter().find(|(_, inode)| **inode == peer).unwrap();
        UnixStream::from(pidfd_getfd(&handle, *descriptor, PidfdGetfdFlags::empty()).unwrap())
    };
    arguments.trim_end_matches('\0').split('\0').skip(1).map(channel).collect()
}

/// Sends a request and receives the answer. Returns `None` if the part has closed the channel.
fn exchange(mut channel: &UnixStream, request: &[u8]) -> Option<Vec<u8>> {
    channel.write_all(&(request.len() as u32).to_le_bytes()).ok()?;
    channel.write_all(request).ok()?;
    let mut header = [0; 4];
    fill(channel, &mut header)?;
    let mut answer = vec![0; u32::from_le_bytes(header) as usize];
    fill(channel, &mut answer)?;
    Some(answer)
}

/// Receives as many bytes as the buffer has. The worker's channel may be non-blocking.
fn fill(mut channel: &UnixStream, mut bytes: &mut [u8]) -> Option<()> {
    let until = Instant::now() + patience(ANSWER);
    while !bytes.is_empty() {
        let left = rustix::time::Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap();
        assert!(poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&left)).unwrap() > 0, "no answer");
        match channel.read(bytes).ok()? {
            0 => return None,
            received => bytes = &mut bytes[received..],
        }
    }
    Some(())
}

/// Returns a random request that decodes. Small numbers and letters are frequent, because lengths and texts consist of them.
fn request<T: DeserializeOwned>(random: &mut Random) -> Vec<u8> {
    loop {
        let byte = |random: &mut Random| match random.below(4) {
            0 => random.byte(),
            1 => b'a' + random.below(26) as u8,
            _ => random.below(6) as u8,
        };
        let mut bytes = vec![random.below(VARIANTS) as u8];
        bytes.extend((0..random.below(LONGEST)).map(|_| byte(random)));
        if postcard::from_bytes::<T>(&bytes).is_ok() {
            return bytes;
        }
    }
}

/// Sends random requests for some time. Returns their number by variant.
fn flood<T: DeserializeOwned>(
    channel: &UnixStream,
    random: &mut Random,
    time: Duration,
    numbered: bool,
) -> BTreeMap<u8, u64> {
    let (until, mut sent) = (Instant::now() + time, BTreeMap::new());
    while Instant::now() < until {
        let request = request::<T>(random);
        *sent.entry(request[0]).or_default() += 1;
        let number: &[u8] = if numbered { &[7] } else { &[] };
        assert!(exchange(channel, &[number, &request].concat()).is_some(), "a part ended after {request:?}");
    }
    sent
}

/// Sends more requests to the supervisor than it executes.
fn flood_supervisor(channel: &UnixStream, random: &mut Random, worker: u32) {
    for _ in 0..10 * READERS {
        let start = STARTS[random.below(3) as usize];
        assert!(exchange(channel, &[start]).is_some(), "the supervisor ended");
    }
    let names =
        family(worker).into_iter().filter_map(|process| fs::read_to_string(format!("/proc/{process}/comm")).ok());
    let names: Vec<String> = names.collect();
    let count = |name: &str| names.iter().filter(|of| of.trim_end() == name).count();
    // A reader that begins has another name.
    assert!(["uc-loader", "uc-writer"].iter().all(|name| count(name) == 1), "{names:?}");
    assert!(names.len() <= 4 + READERS, "{names:?}");
}

/// Floods every channel of a sidecar for some time each, and checks that no part ends.
fn storm(seed: u64, time: Duration) {
    let Some(_alone) = alone("random requests of a fallen worker") else { return };
    eprintln!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let output = format!("json={}", folder.path().join("lines").display());
    let (mut random, mut sidecar) = (Random::new(seed), Sidecar::start_with("12h", &["--output", &output], &[]));
    let worker = sidecar.pid();
    let signal = |signal| kill_process(Pid::from_raw(worker.cast_signed()).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    let (all, attached_before) = (family(worker), attached(worker));
    let [supervisor, loader, reader, writer] = ["uc-supervisor", "uc-loader", "uc-reader", "uc-writer"]
        .map(|name| channels(worker, part(worker, name).unwrap()));
    let ([supervisor], [loader], [files, foreign], [writer]) = (&supervisor[..], &loader[..], &reader[..], &writer[..])
    else {
        panic!("{supervisor:?} {loader:?} {reader:?} {writer:?}")
    };
    eprintln!("{:?}", flood::<Request>(loader, &mut random, time, false));
    eprintln!("{:?}", flood::<FileRequest>(files, &mut random, time, false));
    eprintln!("{:?}", flood::<ForeignRequest>(foreign, &mut random, time, true));
    eprintln!("{:?}", flood::<ForeignRequest>(writer, &mut random, time, true));
    assert_eq!(family(worker), all);
    assert!(attached(worker).programs.is_superset(&attached_before.programs));
    flood_supervisor(supervisor, &mut random, worker);
    // It does not decode.
    drop(exchange(loader, &[0xff; 8]));
    signal(Signal::CONT);
    assert_eq!(sidecar.wait().code(), Some(3));
    let log = sidecar.logs("failed: malformed message");
    assert!(!log.contains("panicked"), "{log}");
    assert_nothing_left(&attached_before, patience(Duration::from_secs(1)));
}

#[test]
fn random_requests_of_a_fallen_worker_end_no_part() {
    storm(1, Duration::from_secs(1));
}

#[test]
fn a_long_storm_of_requests_ends_no_part() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    storm(now.as_secs(), Duration::from_secs(30));
}
