//! Executes any requests in a reader, through its two channels: no panic, and an answer to each request that decodes.
#![no_main]

use std::{
    io::{Read as _, Write as _},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::LazyLock,
    thread,
};

use libfuzzer_sys::fuzz_target;
use undercurrent_host::cgroup::{Hierarchy, Mounts};
use undercurrent_reader::{FileRequest, ForeignRequest, Places, serve};

/// The places of a configuration without files, sockets and network namespaces.
static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let hierarchy = Mounts::read().ok().and_then(Hierarchy::choose);
    Places { hierarchy, ..Places::default() }
});

/// The worker's end of a channel.
struct Worker(UnixStream);

impl Worker {
    fn new() -> (Self, OwnedFd) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        (Self(ours), theirs.into())
    }

    fn send(&mut self, request: &[u8]) {
        // The reader closes the channel after a request that does not decode.
        let _ = self.0.write_all(&[&(request.len() as u32).to_le_bytes(), request].concat());
    }

    /// Returns the number of answers until the reader closes the channel.
    fn answers(mut self) -> usize {
        let _ = self.0.shutdown(Shutdown::Write);
        let mut bytes = Vec::new();
        let _ = self.0.read_to_end(&mut bytes);
        let (mut rest, mut count) = (&bytes[..], 0);
        while let Some((header, after)) = rest.split_first_chunk::<4>() {
            rest = after.get(u32::from_le_bytes(*header) as usize..).expect("a whole answer");
            count += 1;
        }
        count
    }
}

fuzz_target!(|bytes: &[u8]| {
    let ((mut files, their_files), (mut foreign, their_foreign)) = (Worker::new(), Worker::new());
    let reader = thread::spawn(move || serve(their_files.into(), their_foreign.into(), &PLACES));
    let (mut expected, mut rest) = ([0; 2], bytes);
    // A byte chooses the channel and the length of the next request.
    while let Some((&choice, after)) = rest.split_first() {
        let (request, after) = after.split_at(usize::from(choice >> 1).min(after.len()));
        rest = after;
        let decodes = if choice & 1 == 0 {
            files.send(request);
            postcard::from_bytes::<FileRequest>(request).is_ok()
        } else {
            foreign.send(request);
            postcard::from_bytes::<(u64, ForeignRequest)>(request).is_ok()
        };
        if !decodes {
            break;
        }
        expected[usize::from(choice & 1)] += 1;
    }
    // The reader ends with the channel for files, but threads still answer foreign requests.
    assert_eq!([foreign.answers(), files.answers()], [expected[1], expected[0]]);
    let _ = reader.join().expect("no panic");
});
