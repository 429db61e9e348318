//! A scripted server that imitates correct and faulty runtimes.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixListener,
    sync::mpsc,
    task::JoinHandle,
};

/// The action on a connection, after the head of the request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Send these bytes and close.
    Send(Vec<u8>),
    /// Send these bytes and say no more.
    SendAndHold(Vec<u8>),
    /// Send the first bytes, then the others until the client has had enough.
    Flood(Vec<u8>, Vec<u8>),
}

impl Act {
    /// Never answer.
    pub(super) fn hang() -> Self {
        Self::SendAndHold(Vec::new())
    }

    /// Close without an answer.
    pub(super) fn close() -> Self {
        Self::Send(Vec::new())
    }

    /// An answer with a JSON body.
    pub(super) fn json(status: u16, body: &str) -> Self {
        let headers = format!("Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        Self::Send(format!("HTTP/1.1 {status} x\r\n{headers}\r\n\r\n{body}").into_bytes())
    }
}

/// An event on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// This request line came; nothing if the connection ended before.
    Request(String),
    /// The client closed it, after this many bytes of an answer were taken from us.
    Closed(usize),
}

/// A listening server. It ends with the value.
pub(super) struct Server {
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    /// The most connections that were open at a time.
    pub(super) most: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Listens on a socket and plays one act for each connection, the last one again and again.
    pub(super) fn listen(socket: &Path, acts: impl IntoIterator<Item = Act>) -> Self {
        Self::listening(UnixListener::bind(socket).expect("bound"), acts)
    }

    /// Plays one act for each connection to a listener, the last one again and again.
    pub(super) fn listening(listener: UnixListener, acts: impl IntoIterator<Item = Act>) -> Self {
        let mut acts: Vec<Act> = acts.into_iter().collect();
        acts.reverse();
        let (sender, events) = mpsc::unbounded_channel();
        let (most, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let peak = Arc::clone(&most);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let act = if acts.len() > 1 { acts.pop() } else { acts.last().cloned() };
                let (sender, open) = (sender.clone(), Arc::clone(&open));
                peak.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::spawn(async move {
                    play(stream, act.expect("an act"), sender).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { events, most, accepting }
    }

    /// The next event of any connection.
    pub(super) async fn event(&mut self) -> Event {
        self.events.recv().await.expect("an event")
    }

    /// The next request line.
    pub(super) async fn request(&mut self) -> String {
        loop {
            if let Event::Request(line) = self.event().await {
                return line;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Plays an act on a connection.
pub(super) async fn play(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    act: Act,
    events: mpsc::UnboundedSender<Event>,
) {
    let head = head(&mut stream).await;
    // The send fails when a test has ended.
    let _ = events.send(Event::Request(head.lines().next().unwrap_or_default().to_owned()));
    match act {
        Act::Send(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Act::SendAndHold(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let _ = events.send(Event::Closed(bytes.len()));
        }
        Act::Flood(first, others) => {
            let mut sent = first.len();
            let mut taken = stream.write_all(&first).await;
            while taken.is_ok() {
                taken = stream.write_all(&others).await;
                sent += others.len();
            }
            let _ = events.send(Event::Closed(sent));
        }
    }
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A folder for sockets.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
