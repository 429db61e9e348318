#[path = "../../../tests/support/pty.rs"]
#[expect(dead_code, reason = "the tests of the sidecar use the rest")]
mod pty;

use std::{env, num::NonZeroUsize, process::Command};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal as Drawn, backend::TestBackend, buffer::Buffer, style::Modifier};

use super::{
    Terminal,
    app::{App, Effect},
    draw::{Styles, draw},
    pages::Page,
};
use crate::{
    telemetry::{
        AttributeKey, Attributes, Data, Descriptor, Instrument, Metric, Point, ResourceMetrics, Snapshot, View as Shown,
    },
    testing::{
        CPU_TIME, DURATION, ENERGY, HOOK, LOST, PROCESSED, RECEIVE_WAIT, RTT, after, batch, histogram, node, point,
        resource_metrics,
    },
    view::{Recent, View},
};

const fn counter(name: &'static str, unit: &'static str, attributes: &'static [AttributeKey]) -> Descriptor {
    let description = "A counter.";
    Descriptor { name, unit, description, instrument: Instrument::Counter, attributes, view: Shown::Section }
}

static THROTTLED: Descriptor = counter("undercurrent.cpu.throttled.time", "s", &[]);
static RETRANSMITS: Descriptor = counter("undercurrent.tcp.retransmits", "{segment}", &[]);
static DROPS: Descriptor = counter(
    "undercurrent.network.drops",
    "{packet}",
    &[AttributeKey::open("undercurrent.drop.layer", "layer"), AttributeKey::open("undercurrent.drop.reason", "reason")],
);
static OWN_CPU: Descriptor =
    Descriptor { view: Shown::Hidden, ..counter("process.cpu.time", "s", &[AttributeKey::open("cpu.mode", "mode")]) };
static TRANSACTION: Descriptor = Descriptor {
    name: "undercurrent.tcp.transaction.duration",
    unit: "s",
    description: "Requests.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[AttributeKey::open("undercurrent.role", "role")],
    view: Shown::Section,
};

/// The growth of a workload's figures in an interval of ten seconds.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    packets: u64,
    /// The bucket of the wait: four buckets double it, and bucket -80 is 1 µs.
    wait: i32,
    rtt: i32,
    cpu: f64,
    throttled: f64,
    retransmits: i64,
    drops: i64,
    requests: u64,
}

const QUIET: Load = Load {
    name: "",
    packets: 2_000,
    wait: -66,
    rtt: -60,
    cpu: 0.4,
    throttled: 0.0,
    retransmits: 0,
    drops: 0,
    requests: 400,
};

const LOADS: [Load; 13] = [
    Load { name: "checkout", wait: -14, packets: 48_000, cpu: 3.2, requests: 9_100, ..QUIET },
    Load { name: "default/cart-7d9f8b5c6-x2x9k/cart", throttled: 4.1, wait: -16, ..QUIET },
    Load { name: "payments", rtt: -16, packets: 310, ..QUIET },
    Load { name: "search", retransmits: 900, packets: 20_000, ..QUIET },
    Load { name: "metrics-agent", drops: 700, packets: 9_000, requests: 0, ..QUIET },
    Load { name: "postgres", packets: 120_000, cpu: 9.8, requests: 31_000, ..QUIET },
    Load { name: "redis", packets: 640_000, cpu: 7.1, requests: 290_000, ..QUIET },
    Load { name: "nginx.service", packets: 210_000, cpu: 5.5, requests: 70_000, ..QUIET },
    Load { name: "kafka-0", packets: 88_000, ..QUIET },
    Load { name: "kafka-1", packets: 87_000, ..QUIET },
    Load { name: "ssh.service", packets: 40, requests: 3, ..QUIET },
    Load { name: "chronyd.service", packets: 9, requests: 0, ..QUIET },
    Load { name: "sidecar-injector", packets: 70, ..QUIET },
];

fn spread(bucket: i32, count: u64, factor: u32) -> Data {
    let counts = vec![count * 97 / 100, count * 2 / 100, count.div_ceil(100)];
    let counts = counts.into_iter().map(|count| count * u64::from(factor)).collect();
    Data::Histogram(histogram(bucket, counts, 0.0))
}

fn workload(load: &Load, factor: u32) -> ResourceMetrics {
    let whole = |number: i64| Data::Integer(number * i64::from(factor));
    let seconds = |number: f64| Data::Double(number * f64::from(factor));
    let of = |pairs: &[(&'static str, &'static str)]| {
        pairs.iter().fold(Attributes::new(), |all, (key, value)| all.with(*key, *value))
    };
    let tcp = [("network.transport", "tcp"), ("network.type", "ipv4")];
    let layer = |name, bucket| {
        point(of(&[("undercurrent.network.layer", name), tcp[0], tcp[1]]), spread(bucket, load.packets, factor))
    };
    let metric = |descriptor: &'static Descriptor, points: Vec<Point>| Metric { descriptor, points };
    let mut metrics = vec![
        metric(&DURATION, vec![layer("transport", -82), layer("socket_read", load.wait + 1)]),
        metric(&RECEIVE_WAIT, vec![point(of(&tcp), spread(load.wait, load.packets, factor))]),
        metric(&RTT, vec![point(of(&tcp[1..]), spread(load.rtt, load.packets, factor))]),
        metric(
            &CPU_TIME,
            vec![
                point(of(&[("undercurrent.cpu.use", "network")]), seconds(load.cpu / 4.0)),
                point(of(&[("undercurrent.cpu.use", "compute")]), seconds(load.cpu * 3.0 / 4.0)),
            ],
        ),
        metric(&RETRANSMITS, vec![point(Attributes::new(), whole(load.retransmits))]),
        metric(
            &DROPS,
            vec![point(
                of(&[("undercurrent.drop.layer", "socket"), ("undercurrent.drop.reason", "socket_rcvbuff")]),
                whole(load.drops),
            )],
        ),
        metric(&ENERGY, vec![point(Attributes::new(), seconds(load.cpu * 9.0))]),
    ];
    if load.throttled > 0.0 {
        metrics.push(metric(&THROTTLED, vec![point(Attributes::new(), seconds(load.throttled))]));
    }
    if load.requests > 0 {
        metrics.push(metric(
            &TRANSACTION,
            vec![point(of(&[("undercurrent.role", "server")]), spread(-42, load.requests, factor))],
        ));
    }
    resource_metrics(Attributes::new().with("container.name", load.name), metrics)
}

fn snapshot(loads: &[Load], factor: u32) -> Snapshot {
    let per_cpu = |cpu: u32, number: i64| {
        point(Attributes::new().with("cpu.logical_number", cpu), Data::Integer(number * i64::from(factor)))
    };
    let hook = Attributes::new().with("undercurrent.hook", "ip").with("undercurrent.hook.state", "degraded");
    let own = point(Attributes::new().with("cpu.mode", "user"), Data::Double(0.04 * f64::from(factor)));
    let metrics = [
        (&PROCESSED, vec![per_cpu(0, 90_000), per_cpu(1, 21_000)]),
        (&CPU_TIME, vec![point(Attributes::new(), Data::Double(3.0 * f64::from(factor)))]),
        (&OWN_CPU, vec![own]),
        (&LOST, vec![point(Attributes::new().with("undercurrent.reason", "no_timestamp"), Data::Integer(12))]),
        (&HOOK, vec![point(hook, Data::Integer(1))]),
    ];
    let metrics = metrics.map(|(descriptor, points)| Metric { descriptor, points });
    let mut snapshot = node(metrics.into(), after(u64::from(factor) * 10));
    snapshot.resources.extend(loads.iter().map(|load| workload(load, factor)));
    snapshot
}

/// Returns a screen with as many views.
fn app(loads: &[Load], views: u32) -> App {
    let mut recent = Recent::default();
    recent.add(&batch(4));
    let mut app = App::default();
    for factor in 1..=views {
        let (earlier, later) = (snapshot(loads, factor), snapshot(loads, factor + 1));
        app.add(View::new(Some(&earlier), &later, &recent, NonZeroUsize::new(4)));
    }
    app
}

fn drawn(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut screen = Drawn::new(TestBackend::new(width, height)).expect("a screen");
    screen.draw(|frame| draw(frame, app, Styles::plain())).expect("drawn");
    screen.backend().buffer().clone()
}

/// Returns the lines of the screen without the spaces at their ends.
fn text(app: &mut App, width: u16, height: u16) -> String {
    let buffer = drawn(app, width, height);
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn press(app: &mut App, keys: &[KeyCode]) {
    for key in keys {
        assert_eq!(app.event(&Event::Key(KeyEvent::new(*key, KeyModifiers::NONE))), Effect::Draw, "{key:?}");
    }
}

fn names(app: &App) -> Vec<String> {
    app.workloads().into_iter().map(|workload| workload.name).collect()
}

#[test]
fn twelve_workloads_fit_80_by_24() {
    let shown = text(&mut app(&LOADS[..12], 1), 80, 24);
    let causes = ["none", "reader busy", "quota", "network", "drops"];
    let lines = shown.lines().filter(|line| causes.iter().any(|cause| line.ends_with(cause)));
    assert_eq!(lines.count(), 12, "{shown}");
    assert!(shown.contains("slow packets") && shown.contains("hook.status: ip degraded"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn the_first_page_at_120_by_40() {
    insta::assert_snapshot!(text(&mut app(&LOADS, 1), 120, 40));
}

#[test]
fn more_workloads_scroll_with_the_selection() {
    let mut app = app(&LOADS, 1);
    let last = names(&app).pop().expect("a workload");
    assert!(!text(&mut app, 80, 14).contains(&last));
    press(&mut app, &[KeyCode::End]);
    let shown = text(&mut app, 80, 14);
    assert!(shown.contains(&last) && shown.contains("likely cause"), "{shown}");
    assert_eq!(app.selected, LOADS.len() - 1);
    press(&mut app, &[KeyCode::Home, KeyCode::Down]);
    let buffer = drawn(&mut app, 80, 14);
    let reversed: Vec<u16> = (0..14).filter(|y| buffer[(0, *y)].modifier.contains(Modifier::REVERSED)).collect();
    // The selected page is the second line, and the second workload is below the heading.
    assert_eq!(reversed, [1, 4]);
}

#[test]
fn every_page_has_its_sections() {
    let mut app = app(&LOADS[..3], 1);
    let mut pages = Vec::new();
    for (number, page) in ('1'..='6').zip(Page::ALL) {
        press(&mut app, &[KeyCode::Char(number)]);
        assert_eq!(app.page, page);
        let shown = text(&mut app, 100, 60);
        pages.push(format!("--- {}\n{}", page.title(), shown.trim_end()));
    }
    insta::assert_snapshot!(pages[1..].join("\n"));
    press(&mut app, &[KeyCode::Tab, KeyCode::Tab, KeyCode::BackTab]);
    assert_eq!(app.page, Page::Workloads);
}

#[test]
fn one_workload_has_a_page_with_its_evidence_and_its_past() {
    let mut app = app(&LOADS, 6);
    press(&mut app, &[KeyCode::Down, KeyCode::Enter]);
    insta::assert_snapshot!(text(&mut app, 100, 45));
    press(&mut app, &[KeyCode::Enter]);
    assert!(text(&mut app, 100, 45).contains("kafka-1"));
}

#[test]
fn keys_sort_and_filter() {
    let mut app = app(&LOADS, 1);
    assert_eq!(names(&app)[..2], ["checkout", "default/cart-7d9f8b5c6-x2x9k/cart"]);
    // The next column after the wait is the time until the read, then the round-trip time.
    press(&mut app, &[KeyCode::Char('s'), KeyCode::Char('s')]);
    assert_eq!((app.sort.heading(), names(&app)[0].as_str()), ("rtt", "payments"));
    press(&mut app, &[KeyCode::Char('S'); 4]);
    assert_eq!((app.sort.heading(), names(&app)[0].as_str()), ("workload", "checkout"));
    let filter: Vec<KeyCode> = "KAFKA-q".chars().map(KeyCode::Char).collect();
    press(&mut app, &[KeyCode::Char('/')]);
    press(&mut app, &filter);
    assert!(text(&mut app, 80, 24).contains("filter: KAFKA-q"), "q is part of the filter");
    press(&mut app, &[KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!(names(&app), ["kafka-0", "kafka-1"]);
    press(&mut app, &[KeyCode::Esc]);
    assert_eq!(names(&app).len(), LOADS.len());
}

#[test]
fn a_paused_screen_keeps_its_view_and_goes_back_in_time() {
    let mut app = app(&LOADS[..1], 3);
    let time = |app: &App| app.view().expect("a view").time;
    press(&mut app, &[KeyCode::Char('p')]);
    let paused = time(&app);
    let (earlier, later) = (snapshot(&LOADS[..1], 4), snapshot(&LOADS[..1], 5));
    app.add(View::new(Some(&earlier), &later, &Recent::default(), None));
    assert_eq!(time(&app), paused);
    assert!(text(&mut app, 100, 24).contains("paused, 10.0s ago"));
    press(&mut app, &[KeyCode::Left, KeyCode::Left]);
    assert_eq!(app.back(), Some(30.0));
    press(&mut app, &[KeyCode::Left, KeyCode::Left]);
    assert_eq!(app.back(), Some(30.0), "no view is older");
    press(&mut app, &[KeyCode::Right]);
    assert_eq!(app.back(), Some(20.0));
    press(&mut app, &[KeyCode::Char(' ')]);
    assert_eq!((app.back(), time(&app)), (None, after(50)));
}

#[test]
fn a_line_of_the_log_stays_until_a_key_is_pressed() {
    let mut app = app(&LOADS, 1);
    let line = |number: u64| Some((number, format!("line {number} of the log")));
    let before_last = |app: &mut App| text(app, 80, 24).lines().nth(22).expect("a line").to_owned();
    app.log(line(3));
    assert_eq!(before_last(&mut app), "line 3 of the log");
    press(&mut app, &[KeyCode::Down]);
    app.log(line(3));
    assert_ne!(before_last(&mut app), "line 3 of the log");
    app.log(line(4));
    assert_eq!(before_last(&mut app), "line 4 of the log");
}

#[test]
fn help_and_the_end_have_keys() {
    let mut app = App::default();
    assert!(text(&mut app, 80, 24).contains("waiting for the first interval"));
    press(&mut app, &[KeyCode::Char('?')]);
    insta::assert_snapshot!(text(&mut app, 80, 24));
    press(&mut app, &[KeyCode::Char('q')]);
    assert!(!app.is_help && !app.is_ending, "any key ends the help");
    let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
    assert_eq!(app.event(&key(KeyCode::Char('q'), KeyModifiers::NONE)), Effect::End);
    assert_eq!(app.event(&key(KeyCode::Char(' '), KeyModifiers::CONTROL)), Effect::Draw);
    assert_eq!(app.paused, None, "Ctrl-Space is no space");
    assert_eq!(app.event(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)), Effect::End);
    assert!(app.is_ending);
}

#[test]
fn no_size_breaks_the_screen() {
    let mut app = app(&LOADS, 2);
    for keys in [
        [KeyCode::Char('1'), KeyCode::Esc],
        [KeyCode::Char('1'), KeyCode::Enter],
        [KeyCode::Char('3'), KeyCode::End],
        [KeyCode::Char('4'), KeyCode::Char('?')],
    ] {
        press(&mut app, &keys);
        for (width, height) in [(1, 1), (2, 2), (20, 3), (40, 5), (80, 4), (300, 100)] {
            text(&mut app, width, height);
        }
    }
}

/// The variable of a process that panics in its screen.
const PANICS: &str = "UNDERCURRENT_TEST_PANIC";

/// With the variable, this process enters the screen and panics. Without it, it starts such a process.
#[test]
fn a_panic_restores_the_terminal_and_stays_readable() {
    if env::var_os(PANICS).is_some() {
        let terminal = Terminal::of_process();
        assert!(terminal.is_interactive());
        terminal.enter().expect("a screen");
        panic!("this is the report");
    }
    let mut itself = Command::new(env::current_exe().expect("this program"));
    itself.args(["--exact", "terminal::tests::a_panic_restores_the_terminal_and_stays_readable", "--nocapture"]);
    itself.env(PANICS, "1").env("RUST_BACKTRACE", "0");
    let mut screen = pty::Pty::start(itself, (24, 80));
    assert!(!screen.wait().success());
    screen.assert_restored();
    screen.shows("the report", |text| text.contains("this is the report"));
}
