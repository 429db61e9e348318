//! The configuration file at SIGHUP, and the variables of proxies.

#[path = "../../benches/export/collector.rs"]
mod collector;

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use http::request::Parts;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{
    sidecar::command,
    surroundings::{alone, patience, wait_for},
};

/// A sidecar with a configuration file that only root may read.
struct Reloaded {
    sidecar: Child,
    log: mpsc::Receiver<String>,
    file: PathBuf,
}

impl Reloaded {
    /// Starts a sidecar, and waits until it measures.
    fn start(folder: &Path, configuration: &str) -> Self {
        let file = folder.join("config.yaml");
        write(&file, configuration);
        let mut sidecar = command(env!("CARGO_BIN_EXE_undercurrent"));
        sidecar.args(["run", "--config"]).arg(&file);
        let mut sidecar = sidecar.stderr(Stdio::piped()).spawn().unwrap();
        let (send, log) = mpsc::channel();
        let lines = BufReader::new(sidecar.stderr.take().unwrap());
        thread::spawn(move || lines.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let reloaded = Self { sidecar, log, file };
        reloaded.logs(&["run `undercurrent doctor` for details"]);
        reloaded
    }

    /// Waits for a line of the log with all of these texts.
    fn logs(&self, texts: &[&str]) {
        let contains = |line: String| texts.iter().all(|text| line.contains(text)).then_some(());
        wait_for(&format!("{texts:?} in the log"), patience(Duration::from_secs(20)), || {
            self.log.try_iter().find_map(contains)
        });
    }

    /// Reloads another configuration.
    fn load(&self, configuration: &str) {
        write(&self.file, configuration);
        self.hang_up();
    }

    fn hang_up(&self) {
        kill_process(Pid::from_child(&self.sidecar), Signal::HUP).unwrap();
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.sidecar), Signal::TERM).unwrap();
        assert!(self.sidecar.wait().unwrap().success());
    }
}

impl Drop for Reloaded {
    /// Ends the sidecar of a failed test, which would disturb later ones.
    fn drop(&mut self) {
        let _ = self.sidecar.kill();
        let _ = self.sidecar.wait();
    }
}

fn write(file: &Path, configuration: &str) {
    fs::write(file, configuration).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_valid_file_is_applied_and_an_invalid_one_is_not() {
    let Some(_alone) = alone("reloads of the configuration") else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("lines");
    let outputs = format!("outputs: [json={}]\n", output.display());
    let sidecar = Reloaded::start(folder.path(), &format!("{outputs}interval: 12h\n"));

    sidecar.load("intervall: 1s\n");
    sidecar.logs(&["cannot reload the configuration", "config.yaml:1:1: unknown key `intervall`"]);
    fs::remove_file(&sidecar.file).unwrap();
    sidecar.hang_up();
    sidecar.logs(&["cannot reload the configuration", "No such file"]);

    sidecar.load(&format!("{outputs}interval: 100ms\nmemory_limit: 100MB\n"));
    sidecar.logs(&["changed interval"]);
    sidecar.logs(&["restart the sidecar to apply memory_limit"]);
    wait_for("snapshots at the new interval", patience(Duration::from_secs(10)), || {
        (fs::read_to_string(&output).ok()?.lines().count() >= 3).then_some(())
    });
    sidecar.end();
}

/// The heads of the requests that a collector received.
type Requests = Arc<Mutex<Vec<Parts>>>;

/// Starts a collector; port 0 is any free port.
fn collect(address: Ipv4Addr, port: u16) -> (SocketAddr, Requests) {
    let (requests, (send, receive)) = (Requests::default(), mpsc::channel());
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind((address, port)).await.unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            collector::serve(listener, move |head, _| seen.lock().unwrap().push(head.clone())).await
        })
    });
    (receive.recv().unwrap(), requests)
}

/// Waits for a request of metrics with a content type and a token.
fn wait_for_request(requests: &Requests, kind: &str, token: &str) {
    requests.lock().unwrap().clear();
    let is_it = |head: &Parts| {
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        (header("content-type"), header("x-token")) == (Some(kind), Some(token)) && head.uri.path().contains("etrics")
    };
    wait_for(&format!("{kind} with the token {token}"), patience(Duration::from_secs(20)), || {
        requests.lock().unwrap().iter().any(is_it).then_some(())
    });
}

#[test]
fn collectors_change_while_the_sidecar_runs() {
    let Some(_alone) = alone("reloads of the configuration") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (first, of_first) = collect(Ipv4Addr::LOCALHOST, 0);
    let (second, of_second) = collect(Ipv4Addr::new(127, 0, 0, 2), first.port());
    let configuration = |endpoint: &str, protocol: &str, token: &str| {
        format!(
            "{{interval: 200ms, outputs: [otlp], otlp: {{endpoint: 'http://{endpoint}', protocol: {protocol}, headers: \
             {{x-token: {token}}}}}}}\n"
        )
    };
    let sidecar = Reloaded::start(folder.path(), &configuration(&first.to_string(), "grpc", "one"));
    wait_for_request(&of_first, "application/grpc", "one");
    sidecar.load(&configuration(&first.to_string(), "grpc", "two"));
    sidecar.logs(&["changed otlp.headers.x-token"]);
    wait_for_request(&of_first, "application/grpc", "two");
    sidecar.load(&configuration(&second.to_string(), "http/protobuf", "two"));
    sidecar.logs(&["changed otlp.endpoint, otlp.protocol"]);
    wait_for_request(&of_second, "application/x-protobuf", "two");

    // Neither a port that the worker may not connect to, nor an invalid endpoint.
    sidecar.load(&configuration("127.0.0.1:9", "http/protobuf", "three"));
    sidecar.logs(&["cannot change otlp.endpoint, otlp.headers.x-token", "needs a restart", &first.port().to_string()]);
    sidecar.load(&configuration("user:password@host", "http/protobuf", "three"));
    sidecar.logs(&["cannot change otlp.endpoint", "contains credentials"]);
    wait_for_request(&of_second, "application/x-protobuf", "two");
    sidecar.end();
}

#[test]
fn compression_and_timeout_change_while_the_sidecar_runs() {
    let Some(_alone) = alone("reloads of the configuration") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (collector, requests) = collect(Ipv4Addr::LOCALHOST, 0);
    let configuration = |protocol: &str, compression: &str, timeout: &str| {
        format!(
            "{{interval: 200ms, outputs: [otlp], otlp: {{endpoint: 'http://{collector}', protocol: {protocol}, compression: \
             {compression}, timeout: {timeout}}}}}\n"
        )
    };
    let arrives = |encoding: Option<&str>| {
        let header = |head: &Parts, name| Some(head.headers.get(name)?.to_str().unwrap().to_owned());
        let of = |head: &Parts| header(head, "content-encoding").or_else(|| header(head, "grpc-encoding"));
        requests.lock().unwrap().clear();
        wait_for(&format!("requests with the encoding {encoding:?}"), patience(Duration::from_secs(20)), || {
            requests.lock().unwrap().iter().any(|head| of(head).as_deref() == encoding).then_some(())
        });
    };
    for protocol in ["http/protobuf", "grpc"] {
        let sidecar = Reloaded::start(folder.path(), &configuration(protocol, "none", "60s"));
        arrives(None);
        for encoding in ["gzip", "zstd"] {
            sidecar.load(&configuration(protocol, encoding, "60s"));
            sidecar.logs(&["changed otlp.compression"]);
            arrives(Some(encoding));
        }
        sidecar.load(&configuration(protocol, "zstd", "300ms"));
        sidecar.logs(&["changed otlp.timeout"]);
        // A request that began before the change has the old timeout.
        (0..2).for_each(|_| arrives(Some("zstd")));
        {
            // The collector does not answer while it waits for the lock.
            let _locked = requests.lock().unwrap();
            sidecar.logs(&["no answer within 300 ms"]);
        }
        arrives(Some("zstd"));
        sidecar.end();
    }
}

/// A proxy would see the token of a plain connection. The variables are refused by name, and the connection is direct.
#[test]
fn proxies_are_refused_by_name() {
    let Some(_alone) = alone("a proxy") else { return };
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://user:secret@{}", proxy.local_addr().unwrap());
    for protocol in ["http/protobuf", "grpc"] {
        let (collector, requests) = collect(Ipv4Addr::LOCALHOST, 0);
        let mut sidecar = command(env!("CARGO_BIN_EXE_undercurrent"));
        sidecar.args(["run", "--interval", "200ms", "--duration", "1s"]);
        sidecar.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"));
        sidecar.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
        let ended = ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"]
            .iter()
            .fold(&mut sidecar, |sidecar, name| sidecar.env(name, &address))
            .output()
            .unwrap();
        let log = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success(), "{log}");
        assert!(log.contains("HTTPS_PROXY, http_proxy, ALL_PROXY are not supported and were ignored"), "{log}");
        assert!(!log.contains("secret"), "{log}");
        assert!(!requests.lock().unwrap().is_empty(), "{log}");
        assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the proxy has a connection");
    }
}

/// Returns the packets of UDP in the last line that has histograms.
fn datagrams(lines: &Path) -> Option<u64> {
    let text = fs::read_to_string(lines).ok()?;
    let metrics = |line: &str| -> Option<u64> {
        let line: Value = serde_json::from_str(line).ok()?;
        let mut count = None;
        for metric in
            line["resourceMetrics"].as_array()?.iter().flat_map(|of| of["scopeMetrics"][0]["metrics"].as_array())
        {
            for metric in metric.iter().filter(|metric| metric["name"] == "undercurrent.network.receive.duration") {
                let points = metric["exponentialHistogram"]["dataPoints"].as_array()?;
                let udp = points.iter().filter(|point| point["attributes"].to_string().contains("udp"));
                let counts = udp.map(|point| point["count"].as_str().and_then(|count| count.parse::<u64>().ok()));
                *count.get_or_insert(0) += counts.flatten().sum::<u64>();
            }
        }
        count
    };
    text.lines().rev().find_map(metrics)
}

/// Returns for each span of a packet whether it has an address.
fn addresses(lines: &Path) -> Vec<bool> {
    let text = fs::read_to_string(lines).unwrap_or_default();
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let requests = complete.lines().filter(|line| line.starts_with(r#"{"resourceSpans""#));
    let requests = requests.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut found = Vec::new();
    for request in requests {
        let resources = request["resourceSpans"].as_array().unwrap();
        for span in resources.iter().flat_map(|of| of["scopeSpans"][0]["spans"].as_array().unwrap()) {
            if span["name"] == "network receive" {
                found.push(span["attributes"].to_string().contains("network.local.address"));
            }
        }
    }
    found
}

#[test]
fn filters_and_addresses_change_while_the_sidecar_runs() {
    let Some(_alone) = alone("reloads of the configuration") else { return };
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines");
    let [socket, other] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let [port, unused] = [&socket, &other].map(|socket| socket.local_addr().unwrap().port());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = listener.local_addr().unwrap();
    let mut sender = TcpStream::connect(server).unwrap();
    let (mut reader, _) = listener.accept().unwrap();
    let mut exchange_segment = || {
        sender.write_all(b"x").unwrap();
        reader.read_exact(&mut [0; 1]).unwrap();
    };
    let configuration = |filter: &str, addresses: &str| {
        format!(
            "{{interval: 200ms, outputs: ['json={}'], workloads: {{enabled: false}}, packets: {{sampling: all, filter: {filter}}}, \
             signals: {{slow_packets: {{threshold: 100ns, budget: 100, addresses: {addresses}}}}}}}\n",
            lines.display()
        )
    };
    let sidecar = Reloaded::start(
        folder.path(),
        &configuration(&format!("{{ports: [{unused}, {}]}}", server.port()), "shortened"),
    );
    let exchange = || {
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        socket.recv(&mut [0; 1]).unwrap();
    };
    let length = || fs::metadata(&lines).map_or(0, |metadata| metadata.len());
    (0..50).for_each(|_| exchange());
    let written = length();
    wait_for("another snapshot", patience(Duration::from_secs(10)), || (length() > written).then_some(()));
    let excluded = datagrams(&lines).unwrap_or_default();

    wait_for("a span with addresses", patience(Duration::from_secs(20)), || {
        exchange_segment();
        addresses(&lines).last().copied().filter(|has| *has)
    });

    sidecar.load(&configuration("{processes: [1]}", "shortened"));
    sidecar.logs(&["cannot change packets.filter", "other criteria need a restart"]);
    sidecar.load(&configuration(&format!("{{ports: [{port}, {}]}}", server.port()), "none"));
    sidecar.logs(&["changed packets.filter.ports"]);
    sidecar.logs(&["changed signals.slow_packets.addresses"]);
    wait_for("the selected packets", patience(Duration::from_secs(20)), || {
        exchange();
        (datagrams(&lines)? >= excluded + 50).then_some(())
    });
    wait_for("a span without addresses", patience(Duration::from_secs(20)), || {
        exchange_segment();
        addresses(&lines).last().copied().filter(|has| !has)
    });
    sidecar.end();
}
