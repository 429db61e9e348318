//! An HTTP/1.1 server that follows a script, also of broken answers.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

/// A scripted answer.
#[derive(Clone)]
pub(super) enum Answer {
    /// Send these bytes, and keep the connection.
    Send(Vec<u8>),
    /// Send these bytes, and close the connection.
    Close(Vec<u8>),
    /// Send these bytes, and reset the connection.
    Reset(Vec<u8>),
    /// Send these bytes, then a byte at a time without an end.
    Endless(Vec<u8>, Duration),
    /// Read the body of the request at this number of bytes per millisecond, and send these bytes.
    ReadSlowly(usize, Vec<u8>),
    /// Never answer.
    Hang,
}

/// A received request.
#[derive(Debug)]
pub(super) struct Received {
    /// The number of the connection, from 0.
    pub(super) connection: usize,
    /// The request line.
    pub(super) line: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A server with a script, which all connections share.
pub(super) struct Web {
    address: SocketAddr,
    received: mpsc::Receiver<Received>,
}

/// Returns a response with a status, headers in the format of HTTP, and a body.
pub(super) fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Returns an answer with this response.
pub(super) fn answer(status: u16, headers: &str, body: &[u8]) -> Answer {
    Answer::Send(response(status, headers, body))
}

/// Returns the answer of a receiver that accepts everything.
pub(super) fn accept() -> Answer {
    answer(200, "content-type: application/x-protobuf\r\n", b"")
}

impl Web {
    pub(super) fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let answers: Vec<Answer> = answers.into_iter().collect();
        let script = Arc::new(Mutex::new(answers.into_iter()));
        let (sender, received) = mpsc::channel();
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let (script, sender) = (Arc::clone(&script), sender.clone());
                thread::spawn(move || serve(stream, connection, &script, &sender));
            }
        });
        Self { address, received }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for the next request.
    pub(super) fn received(&self) -> Received {
        self.received.recv_timeout(Duration::from_secs(20)).expect("no further request came")
    }
}

/// Serves a connection until the client or the script ends it.
fn serve(
    mut stream: TcpStream,
    connection: usize,
    script: &Mutex<std::vec::IntoIter<Answer>>,
    received: &mpsc::Sender<Received>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some((line, headers)) = head(&mut reader)? {
        let Some(answer) = script.lock().expect("a script").next() else { return Ok(()) };
        let length = headers.iter().find(|(key, _)| key == "content-length").and_then(|(_, value)| value.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        let pace = if let Answer::ReadSlowly(pace, _) = &answer { *pace } else { usize::MAX };
        for part in body.chunks_mut(pace) {
            reader.read_exact(part)?;
            if pace < usize::MAX {
                thread::sleep(Duration::from_millis(1));
            }
        }
        // The receiver is dropped when a test has ended.
        let _ = received.send(Received { connection, line, headers, body });
        match answer {
            Answer::Send(bytes) | Answer::ReadSlowly(_, bytes) => stream.write_all(&bytes)?,
            Answer::Close(bytes) => return stream.write_all(&bytes),
            Answer::Reset(bytes) => {
                stream.write_all(&bytes)?;
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
                return Ok(());
            }
            Answer::Endless(bytes, pause) => {
                stream.write_all(&bytes)?;
                loop {
                    stream.write_all(b"a")?;
                    thread::sleep(pause);
                }
            }
            // The thread ends when the client closes the connection.
            Answer::Hang => drop(reader.read(&mut [0])?),
        }
    }
    Ok(())
}

type Head = (String, Vec<(String, String)>);

/// Reads the head of a request. Returns `None` at the end of the connection.
fn head(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((key, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((key.to_ascii_lowercase(), value.to_owned()));
    }
    Ok(Some((line.trim_end().to_owned(), headers)))
}
