//! What the guest writes to: its command's output, and its last word.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    thread::{self, JoinHandle},
};

use anyhow::Context as _;

/// This side's ends of the ports. They are sockets, which end by themselves when QEMU does.
pub struct Ports {
    stdout: UnixStream,
    stderr: UnixStream,
    status: UnixStream,
}

impl Ports {
    /// What the guest knows them by.
    pub const NAMES: [&str; 3] = ["stdout", "stderr", "status"];

    /// Makes the ports, and QEMU's ends of them in the order of their names.
    pub fn open() -> anyhow::Result<(Self, [OwnedFd; 3])> {
        let pair = || UnixStream::pair().context("cannot make a pair of sockets");
        let ((stdout, a), (stderr, b), (status, c)) = (pair()?, pair()?, pair()?);
        Ok((Self { stdout, stderr, status }, [a.into(), b.into(), c.into()]))
    }

    /// Passes on what the guest writes until it ends, in threads that end then, and tells its last word, or `None` if it
    /// ended without one.
    pub fn forward(self, tell: impl FnOnce(Option<String>) + Send + 'static) -> [JoinHandle<()>; 2] {
        let Self { stdout, stderr, status } = self;
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(status).read_line(&mut line);
            tell((read.is_ok() && line.ends_with('\n')).then_some(line));
        });
        [thread::spawn(move || copy(stdout, io::stdout())), thread::spawn(move || copy(stderr, io::stderr()))]
    }
}

/// Passes on what comes as it comes. Goes on reading when nobody wants it, or the guest would stop.
fn copy(mut from: UnixStream, mut to: impl Write) {
    let mut buffer = vec![0; 1 << 16];
    let mut wanted = true;
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            break;
        }
        wanted = wanted && to.write_all(&buffer[..length]).and_then(|()| to.flush()).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn told(words: &[u8]) -> Option<String> {
        let (ports, [_, _, theirs]) = Ports::open().unwrap();
        let (sender, told) = mpsc::channel();
        let output = ports.forward(move |status| sender.send(status).unwrap());
        UnixStream::from(theirs).write_all(words).unwrap();
        output.into_iter().for_each(|thread| thread.join().unwrap());
        told.recv().unwrap()
    }

    #[test]
    fn half_a_last_word_is_none() {
        assert_eq!(told(b"1.0 2.0 0\n").as_deref(), Some("1.0 2.0 0\n"));
        assert_eq!(told(b"1.0 2.0 0"), None);
        assert_eq!(told(b""), None);
    }
}
