//! Requests of well-behaved, slow and hostile clients.

use std::{os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex},
    net::{TcpStream, UnixStream},
    sync::mpsc,
};

use super::*;
use crate::{
    config::{Flags, Run},
    export::{Bus, Outputs, prometheus},
    options::LocalAddress,
    signals::internal,
    telemetry::{Attributes, Data, Metric, Point, Resource, ResourceMetrics, Snapshot, UnixNanos},
    watchdog::Watchdog,
};

const INTERVAL: Duration = Duration::from_secs(10);
const SECRET: &str = "0123456789abcdef";
/// The connections that the server answers at a time.
const CONNECTIONS: usize = 16;
/// Points of the snapshot: enough for an answer of more than the buffer of a connection.
const POINTS: i64 = 1000;
const BUFFER: usize = 4096;

fn health() -> Health {
    let watchdog = Watchdog::new(INTERVAL);
    watchdog.ready();
    Health::new(watchdog, Vec::new())
}

/// A server with a snapshot, and its clients.
struct Server {
    connections: mpsc::UnboundedSender<DuplexStream>,
    outputs: Outputs,
}

impl Server {
    /// Starts a server without a snapshot.
    fn empty(token: Option<Token>) -> Self {
        let bus = Bus::default();
        let (output, newest) = prometheus::open(&bus, None);
        let (connections, accepted) = mpsc::unbounded_channel();
        let accepted = tokio::sync::Mutex::new(accepted);
        let accept = async move || accepted.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe.into());
        tokio::spawn(server::run(accept, Pages { newest: Some(newest), health: health(), token }));
        Self { connections, outputs: Outputs::new(bus, vec![output]) }
    }

    async fn start(token: Option<Token>) -> Self {
        let server = Self::empty(token);
        let point = |number| Point {
            attributes: Attributes::new().with("undercurrent.version", number),
            start: UnixNanos(0),
            data: Data::Integer(1),
        };
        let metric = Metric { descriptor: internal::METRICS[0], points: (0..POINTS).map(point).collect() };
        let attributes = Attributes::new().with("service.name", "undercurrent");
        let resource = ResourceMetrics { resource: Arc::new(Resource { attributes }), metrics: vec![metric] };
        server.outputs.bus().publish(&Arc::new(Snapshot { time: UnixNanos(7), resources: vec![resource] }));
        while server.outputs.delivered() != UnixNanos(7) {
            tokio::task::yield_now().await;
        }
        server
    }

    fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(BUFFER);
        self.connections.send(server).expect("the server runs");
        client
    }

    /// Sends bytes, and returns the response.
    async fn send(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(request).await;
        read(stream).await
    }

    /// Requests a path with further headers, each with its end of line.
    async fn get(&self, path: &str, headers: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes()).await
    }

    /// Waits until the number of requests with an outcome is this one.
    async fn counted(&self, outcome: Option<&'static str>, count: u64) {
        while self.outputs.statistics()[0].totals().snapshots(outcome) != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn read(mut stream: impl AsyncRead + Unpin) -> String {
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("the server closes the connection");
    String::from_utf8_lossy(&response).into_owned()
}

fn status(response: &str) -> &str {
    response.lines().next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default()
}

/// Returns the head of a response, without the date.
fn head(response: &str) -> String {
    let (head, _) = response.split_once("\r\n\r\n").expect("a head");
    head.lines().filter(|line| !line.starts_with("date:")).collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn readers_get_the_format_that_they_prefer() {
    let server = Server::start(None).await;
    let text = server.get("/metrics", "host: localhost:9464\r\n").await;
    insta::assert_snapshot!(head(&text), @"
    HTTP/1.1 200 OK
    content-type: text/plain; version=0.0.4; charset=utf-8
    cache-control: no-store
    x-content-type-options: nosniff
    vary: accept
    connection: close
    content-length: 85187
    ");
    assert_eq!(text.matches("\nundercurrent_build_info{").count(), usize::try_from(POINTS).expect("a size"));
    let open =
        server.get("/metrics", "accept: application/openmetrics-text;version=1.0.0\r\naccept: */*;q=0.1\r\n").await;
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0") && open.ends_with("# EOF\n"));
    let json = server.get("/v1/snapshot", "").await;
    assert!(json.contains("content-type: application/json") && json.contains("undercurrent.build.info"), "{json}");
    let none = server.send(b"HEAD /metrics HTTP/1.1\r\n\r\n").await;
    assert!(status(&none) == "200" && none.ends_with("\r\n\r\n"), "{none}");
    server.counted(None, 4).await;
    assert_eq!(server.outputs.statistics()[0].totals().points(None), 4 * POINTS.unsigned_abs());
}

#[tokio::test(start_paused = true)]
async fn the_page_loads_nothing_else_and_polls_the_view() {
    let server = Server::start(None).await;
    let page = server.get("/", "").await;
    assert!(page.contains("content-security-policy: default-src 'none';"), "{}", head(&page));
    for outside in ["://", "src=", "<link", "@import", "url(", "innerHTML", "eval("] {
        assert!(!page.contains(outside), "the page has {outside}");
    }
    assert!(page.contains("/v1/view"));
    let view = server.get("/v1/view", "").await;
    let (head, body) = view.split_once("\r\n\r\n").expect("a body");
    let view: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert!(head.contains("application/json") && view["pages"][0]["title"] == "workloads", "{view}");
}

#[tokio::test(start_paused = true)]
async fn health_checks_are_among_the_pages_and_count_as_no_reader() {
    let server = Server::empty(None);
    assert!(server.get("/healthz", "").await.ends_with("\r\n\r\nok\n"));
    assert_eq!(status(&server.get("/readyz", "").await), "200");
    assert_eq!(status(&server.get("/metrics", "").await), "503", "there is no snapshot");
    server.counted(Some("503"), 1).await;
    server.counted(None, 0).await;
}

#[tokio::test(start_paused = true)]
async fn every_refusal_is_counted_by_its_status() {
    let server = Server::start(None).await;
    let long = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(20 << 10));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(100));
    let requests: [(&[u8], &'static str); 9] = [
        (b"POST /metrics HTTP/1.1\r\ncontent-length: 0\r\n\r\n", "405"),
        (b"GET /favicon.ico HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics/../v1/snapshot HTTP/1.1\r\n\r\n", "404"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", "400"),
        (b"GET http://[::1 HTTP/1.1\r\n\r\n", "400"),
        (long.as_bytes(), "431"),
        (many.as_bytes(), "431"),
    ];
    for (request, expected) in requests {
        let response = server.send(request).await;
        assert_eq!(
            status(&response),
            expected,
            "{}: {response}",
            String::from_utf8_lossy(&request[..request.len().min(40)])
        );
    }
    for (reason, count) in [("405", 1), ("404", 2), ("400", 4), ("431", 2)] {
        server.counted(Some(reason), count).await;
    }
    server.counted(None, 0).await;
    assert_eq!(status(&server.get("/metrics", "").await), "200");
}

#[tokio::test(start_paused = true)]
async fn slow_clients_end_and_leave_others_their_turn() {
    let server = Server::start(None).await;
    let mut slow: Vec<DuplexStream> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for (number, stream) in slow.iter_mut().enumerate() {
        // Half of them send a part of the headers, the others read no answer.
        let request: &[u8] =
            if number % 2 == 0 { b"GET /metrics HTTP/1.1\r\nhost" } else { b"GET /metrics HTTP/1.1\r\n\r\n" };
        stream.write_all(request).await.expect("sent");
    }
    let silent = server.connect();
    assert_eq!(status(&server.get("/metrics", "").await), "200", "all slow clients came before");
    server.counted(Some("timeout"), CONNECTIONS as u64 + 1).await;
    assert_eq!(read(silent).await, "", "the server closes the connection of a client that sends nothing");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_early_is_no_reader() {
    let server = Server::start(None).await;
    drop(server.connect());
    let mut stream = server.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.expect("sent");
    stream.read_u8().await.expect("the answer begins");
    drop(stream);
    server.counted(Some("connection_error"), 1).await;
    server.counted(None, 0).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_token_opens_the_pages() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), SECRET).expect("written");
    let server = Server::start(Some(Token::read(file.path()).expect("a token"))).await;
    for path in ["/metrics", "/v1/snapshot", "/healthz", "/nothing"] {
        let refused = server.get(path, "authorization: Bearer 0123456789abcdee\r\n").await;
        assert!(status(&refused) == "401" && refused.contains("www-authenticate: Bearer"), "{refused}");
        assert_eq!(status(&server.get(path, "").await), "401");
    }
    let with = format!("host: node-1.example:9464\r\nauthorization: Bearer {SECRET}\r\n");
    assert_eq!(status(&server.get("/metrics", &with).await), "200");
    server.counted(Some("401"), 8).await;
}

#[tokio::test(start_paused = true)]
async fn pages_of_other_sites_reach_nothing_by_a_name_of_their_own() {
    let server = Server::start(None).await;
    for host in ["attacker.example:9464", "localhost.attacker.example", "127.0.0.1.attacker.example", "a b", ""] {
        let refused = server.get("/v1/snapshot", &format!("host: {host}\r\n")).await;
        assert_eq!(status(&refused), "403", "{host}");
    }
    for host in ["localhost:9464", "LOCALHOST", "127.0.0.1:9464", "[::1]:9464"] {
        assert_eq!(status(&server.get("/v1/snapshot", &format!("host: {host}\r\n")).await), "200", "{host}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_end_the_server(requests in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), 1..5)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let server = Server::empty(None);
            for request in requests {
                server.send(&request).await;
            }
            assert_eq!(status(&server.get("/healthz", "").await), "200");
        });
    }
}

/// Sends a request, and returns the first line of the response.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.expect("sent");
    read(stream).await.lines().next().unwrap_or_default().to_owned()
}

fn open(address: &LocalAddress) -> Result<Listener, ListenError> {
    Listener::open(address, CHECKS)
}

fn free() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port")
}

#[tokio::test]
async fn either_address_answers_health_checks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("health.sock");
    // A socket that an ended process left.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let unix = LocalAddress::Unix(path.clone());
    open(&unix).expect("a listener").serve(health()).expect("served");
    let mode = std::fs::metadata(&path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "every user may connect");
    let stream = || async { UnixStream::connect(&path).await.expect("a connection") };
    assert_eq!(ask(stream().await, "GET /healthz").await, "HTTP/1.1 200 OK");
    assert_eq!(ask(stream().await, "POST /healthz").await, "HTTP/1.1 405 Method Not Allowed");
    assert!(ask(stream().await, "SSH-2.0").await.starts_with("HTTP/1.1 400"));
    let error = open(&unix).err().expect("the address is in use").to_string();
    assert!(error.contains("health.sock") && error.ends_with("in `health.listen`"), "{error}");

    let address = free();
    open(&LocalAddress::Tcp(address)).expect("a listener").serve(health()).expect("served");
    let stream = TcpStream::connect(address).await.expect("a connection");
    assert_eq!(ask(stream, "GET /nothing").await, "HTTP/1.1 404 Not Found");
}

/// Opens the pages of a configuration with this token file.
fn pages(address: &str, token: Option<&Path>) -> Result<Endpoints, String> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let token = token.map_or_else(String::new, |path| format!("listen: {{token_file: {}}}\n", path.display()));
    std::fs::write(file.path(), token).expect("written");
    let flags = Flags { listen: Some(address.parse().expect("an address")), ..Flags::default() };
    let run = Run { config: Some(file.path().to_owned()), flags, ..Run::default() };
    let (settings, _) = run.settings(&|_| None).map_err(|error| error.to_string())?;
    Endpoints::open(&settings).map_err(|error| error.to_string())
}

#[tokio::test]
async fn other_hosts_need_a_token() {
    let refused = pages("0.0.0.0:0", None).err().expect("refused");
    assert!(refused.contains("0.0.0.0:0") && refused.contains("`listen.token_file`"), "{refused}");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let empty = pages("0.0.0.0:0", Some(file.path())).err().expect("refused");
    assert!(empty.contains("fewer than 16 characters"), "{empty}");
    std::fs::write(file.path(), SECRET).expect("written");
    assert!(pages("0.0.0.0:0", Some(file.path())).is_ok() && pages("127.0.0.1:0", None).is_ok());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let error = pages(&taken.local_addr().expect("an address").to_string(), None).err().expect("in use");
    assert!(error.contains("for readers on 127.0.0.1") && error.contains("in `listen.address`"), "{error}");
}

#[tokio::test]
async fn a_sidecar_that_measures_nothing_answers_health_checks() {
    let address = free();
    pages(&address.to_string(), None).expect("pages").serve(health(), None).expect("served");
    let answers = ["GET /healthz", "GET /metrics"]
        .map(async |request| ask(TcpStream::connect(address).await.expect("a connection"), request).await);
    let [health, metrics] = answers;
    assert_eq!(health.await, "HTTP/1.1 200 OK");
    assert_eq!(metrics.await, "HTTP/1.1 503 Service Unavailable");
}
