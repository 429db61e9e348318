//! Ports that the guest writes to: the output of the command, and the final status line.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    thread::{self, JoinHandle},
};

use anyhow::Context as _;

/// The host's ends of the ports. They are sockets, so they reach the end of file when QEMU exits.
pub struct Ports {
    stdout: UnixStream,
    stderr: UnixStream,
    status: UnixStream,
}

impl Ports {
    /// Names of the ports in the guest.
    pub const NAMES: [&str; 3] = ["stdout", "stderr", "status"];

    /// Creates the ports. Returns also QEMU's ends, in the order of [`Self::NAMES`].
    pub fn open() -> anyhow::Result<(Self, [OwnedFd; 3])> {
        let pair = || UnixStream::pair().context("cannot create a pair of sockets");
        let ((stdout, a), (stderr, b), (status, c)) = (pair()?, pair()?, pair()?);
        Ok((Self { stdout, stderr, status }, [a.into(), b.into(), c.into()]))
    }

    /// Starts threads that copy the guest's output until the guest exits. Calls `report` with the status line, or with `None` if
    /// the guest exits without one.
    pub fn forward(self, report: impl FnOnce(Option<String>) + Send + 'static) -> [JoinHandle<()>; 2] {
        let Self { stdout, stderr, status } = self;
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(status).read_line(&mut line);
            report((read.is_ok() && line.ends_with('\n')).then_some(line));
        });
        [thread::spawn(move || copy(stdout, io::stdout())), thread::spawn(move || copy(stderr, io::stderr()))]
    }
}

/// Copies data as it arrives. Continues to read if the writer is closed: a full port would block the guest.
fn copy(mut from: UnixStream, mut to: impl Write) {
    let mut buffer = vec![0; 1 << 16];
    let mut is_open = true;
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            break;
        }
        is_open = is_open && to.write_all(&buffer[..length]).and_then(|()| to.flush()).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn reported(words: &[u8]) -> Option<String> {
        let (ports, [_, _, theirs]) = Ports::open().unwrap();
        let (sender, status) = mpsc::channel();
        let output = ports.forward(move |line| sender.send(line).unwrap());
        UnixStream::from(theirs).write_all(words).unwrap();
        output.into_iter().for_each(|thread| thread.join().unwrap());
        status.recv().unwrap()
    }

    #[test]
    fn an_incomplete_status_line_is_none() {
        assert_eq!(reported(b"1.0 2.0 0\n").as_deref(), Some("1.0 2.0 0\n"));
        assert_eq!(reported(b"1.0 2.0 0"), None);
        assert_eq!(reported(b""), None);
    }
}
