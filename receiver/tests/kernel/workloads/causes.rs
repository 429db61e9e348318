//! The likely causes that `undercurrent why` names, for causes that the tests build.

use std::{
    io::Read as _,
    net::{IpAddr, Ipv4Addr},
    process::Stdio,
    time::Duration,
};

use super::{
    super::support::{cgroups::Group, namespace::Namespace, surroundings::skip},
    message::Turns,
    scene::{Scene, everywhere},
    sockets::Transport,
    worker::Worker,
};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The number of measurements while other programs use the CPUs.
const ATTEMPTS: usize = 6;
const AT_ONCE: Duration = Duration::ZERO;

/// A second of messages without answers.
const STREAM: Turns = Turns {
    count: 100,
    asks: true,
    reads: 0,
    delay: Duration::from_millis(10),
    pieces: 1,
    writes: 100,
    pause: AT_ONCE,
};
/// A reader that sleeps for a tenth of a second after each read of ten messages.
const SLOW: Turns = Turns {
    count: 10,
    asks: false,
    reads: 1_000,
    delay: Duration::from_millis(100),
    pieces: 0,
    writes: 0,
    pause: AT_ONCE,
};
/// Requests that are answered at once.
const ASK: Turns = Turns { reads: 100, ..STREAM };
const ANSWER: Turns = Turns { count: 100, reads: 100, delay: AT_ONCE, pieces: 1, writes: 100, ..SLOW };

/// A report of `undercurrent why`.
struct Report(String);

impl Report {
    fn cause(&self) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix("likely cause: ")).unwrap()
    }

    /// Returns true if other programs used most of the CPU time.
    fn is_of_a_busy_node(&self) -> bool {
        // The last line with it is among the figures.
        let mut lines = self.0.lines().rev();
        let busy = lines.find_map(|line| line.trim().strip_prefix("used part of the node's CPU time"));
        busy.unwrap().trim().trim_end_matches('%').parse::<f64>().unwrap() >= 80.0
    }
}

/// Measures a group during traffic.
fn why(scene: &Scene, group: &Group, traffic: impl Fn()) -> Report {
    let mut command = scene.command();
    command.args(["why", "--seconds", "3", "--workload"]).arg(&group.path).stdout(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let status = loop {
        match running.try_wait().unwrap() {
            Some(status) => break status,
            None => traffic(),
        }
    };
    let mut text = String::new();
    running.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(status.success(), "{status}");
    eprintln!("{text}");
    Report(text)
}

/// Asserts that a cause is named. Other programs that use all CPUs are a cause of their own.
fn assert_cause(expected: &str, report: impl Fn() -> Report) {
    for _ in 0..ATTEMPTS {
        let report = report();
        if report.cause() == expected {
            return;
        }
        assert!(report.is_of_a_busy_node(), "{expected} instead of {}:\n{}", report.cause(), report.0);
    }
    skip(&format!("the likely cause `{expected}`: other programs use the CPUs"));
}

/// Two workers with a connection over loopback.
struct Pair {
    client: Worker,
    asks: usize,
    server: Worker,
    answers: usize,
}

impl Pair {
    fn connect([asking, serving]: [&Group; 2]) -> Self {
        let namespace = Namespace::current();
        let (client, server) = (Worker::start(&asking.own(), &namespace), Worker::start(&serving.own(), &namespace));
        let (listener, address) = server.bind(Transport::Tcp, LOOPBACK);
        let asks = client.connect(address).0;
        let answers = server.accept(listener);
        Self { client, asks, server, answers }
    }

    fn converse(&self, asking: Turns, serving: Turns) {
        self.client.converse((self.asks, asking), &self.server, (self.answers, serving));
    }
}

fn readers(scene: &Scene) {
    let [asking, serving] = [scene.group(), scene.group()];
    let pair = Pair::connect([&asking, &serving]);
    assert_cause("reader busy", || why(scene, &serving, || pair.converse(STREAM, SLOW)));
    assert_cause("none", || why(scene, &serving, || pair.converse(ASK, ANSWER)));
}

#[test]
fn a_slow_reader_is_named_and_a_quick_one_has_no_cause() {
    everywhere("the cause of a slow reader", readers);
}

fn quota(scene: &Scene) {
    let [asking, serving] = [scene.group(), scene.group()];
    if let Err(error) = serving.limit(&serving.path) {
        eprintln!("left out: {error}");
        return;
    }
    let pair = Pair::connect([&asking, &serving]);
    assert_cause("quota", || {
        let _burner = serving.burn(&serving.path).unwrap();
        why(scene, &serving, || pair.converse(ASK, ANSWER))
    });
}

#[test]
fn a_quota_is_named() {
    everywhere("the cause of a quota", quota);
}

#[test]
fn a_workload_without_traffic_is_not_found() {
    everywhere("the cause of nothing", |scene| {
        let group = scene.group();
        let mut command = scene.command();
        command.args(["why", "--seconds", "2", "--workload"]).arg(&group.path).stderr(Stdio::piped());
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
        assert!(String::from_utf8_lossy(&output.stderr).contains("no workload with network traffic has"));
    });
}
