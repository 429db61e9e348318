//! Formats the costs as a table, with limits.

use std::fmt::Write as _;

use super::round::{self, Cost, Round};
use crate::verdict;

/// The unit of the kernel's statistics.
pub enum Stopwatch {
    /// Nanoseconds of CPU time.
    Nanoseconds,
    /// Instructions in a guest under this kernel.
    Instructions(String),
}

/// Maximum cost of a latency event relative to an empty program, in nanoseconds on a machine with a clock that takes [`CLOCK`]. Each entry
/// has the set of handlers, its description and the limit.
const LATENCY_LIMITS: [(&str, &str, f64); 7] = [
    (WITHOUT_WAITS, "ungrouped, only the layers", 50.0),
    (ALL, "ungrouped, with waits before reads", 50.0),
    ("by_workload_without_waits", "by workload, cgroup v2, only the layers", 75.0),
    ("by_workload", "by workload, cgroup v2", 75.0),
    ("by_workload_by_cpu", "by workload, cgroup v1", 75.0),
    ("sampled", "ungrouped, with waits, one packet in four", 50.0),
    ("sampled_by_workload", "by workload, cgroup v2, one packet in four", 75.0),
];
/// Cost of a clock reading, relative to an empty program, on the reference machine of the limits, in nanoseconds.
const CLOCK: f64 = 26.0;
/// The program that only reads the clock.
const CLOCK_ALONE: &str = "clock_alone";
/// Prefixes of the kinds of traffic.
const PROTOCOLS: [&str; 2] = ["tcp", "udp"];

/// A packet's path through programs, one for each layer.
struct PacketPath {
    name: &'static str,
    traffic: &'static str,
    layers: &'static [&'static str],
    /// Cost of netstacklat on this path, relative to empty programs on its hooks, in instructions of a guest under 6.12.
    netstacklat: f64,
}

/// Paths of TCP and UDP over IPv4. At `ip`, a TCP segment on a veth pair has its departure time, so there is nothing to measure.
const PATHS: [PacketPath; 2] = [
    PacketPath {
        name: "four layers of one UDP packet",
        traffic: "udp_ipv4",
        layers: &["ip_rcv_core", "udp_rcv", "udp_enqueue_schedule_skb", "skb_consume_udp"],
        netstacklat: 936.0,
    },
    PacketPath {
        name: "three layers of one TCP segment",
        traffic: "tcp_ipv4",
        layers: &["tcp_v4_rcv", "tcp_queue_rcv", "tcp_recv_timestamp"],
        netstacklat: 781.0,
    },
];
/// Maximum cost of the sidecar on a path, as a share of netstacklat's cost.
const SHARE_LIMIT: f64 = 0.64;
const SHARED_HOOK: &str = "softirq_entry";
const ALL: &str = "all";
const WITHOUT_WAITS: &str = "without_waits";
const WITHOUT_SLOW_PACKETS: &str = "without_slow_packets";

/// Returns the table and the verdicts.
pub fn render(rounds: &[Round], stopwatch: &Stopwatch) -> String {
    let unit = match stopwatch {
        Stopwatch::Nanoseconds => "ns",
        Stopwatch::Instructions(_) => "instructions",
    };
    let mut text = table(rounds, ALL, unit);
    shared(&mut text, rounds);
    match stopwatch {
        Stopwatch::Nanoseconds => latency(&mut text, rounds),
        Stopwatch::Instructions(kernel) => {
            PATHS.iter().for_each(|path| packet_path(&mut text, rounds, kernel, path));
            PATHS.iter().for_each(|path| selection(&mut text, rounds, path));
        }
    }
    text
}

/// Returns a table of the programs under a set of handlers.
pub fn table(rounds: &[Round], handlers: &str, unit: &str) -> String {
    let mut text = format!(
        "{unit} an event: medians over rounds; in brackets 95% intervals of the median. `net` is paired by round\n\
         {:<26}{:<10}{:>7}{:>9}  {:>9}{:>9}  {:<18}{:>9}\n",
        "PROGRAM", "TRAFFIC", "ROUNDS", "EVENTS", "product", "empty", "     net", "net/empty"
    );
    let mut traffics: Vec<&str> = rounds.iter().map(|round| round.traffic.as_str()).collect();
    traffics.sort_unstable();
    traffics.dedup();
    for program in round::programs(rounds) {
        for &traffic in &traffics {
            let chosen = |round: &Round| round.handlers == handlers && round.traffic == traffic;
            if let Some(cost) = round::cost(rounds, program, chosen) {
                line(&mut text, program, traffic, &cost);
            }
        }
    }
    text
}

fn line(text: &mut String, program: &str, traffic: &str, cost: &Cost) {
    let net = format!("{:6.1} {}", cost.net.value, cost.net.bracketed());
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{program:<26}{traffic:<10}{:>7}{:>9}  {:>9.1}{:>9.1}  {net:<18}{:>9.2}",
        cost.rounds,
        cost.events,
        cost.product.value,
        cost.other.value,
        cost.net.value / cost.other.value
    );
}

/// Writes the cost of the hook that serves two signals, with both handlers and with one.
fn shared(text: &mut String, rounds: &[Round]) {
    let with = |handlers| round::cost(rounds, SHARED_HOOK, |round| round.handlers == handlers);
    if let (Some(both), Some(one)) = (with(ALL), with(WITHOUT_WAITS)) {
        let _ = writeln!(
            text,
            "\n{SHARED_HOOK}, all traffic: both handlers {:.1} {} above the empty program, softirq_wait switched off {:.1} {}",
            both.net.value,
            both.net.bracketed(),
            one.net.value,
            one.net.bracketed()
        );
    }
}

/// Writes the native cost of a latency event by protocol, since programs depend on the protocol. The cost of a clock reading differs more
/// between machines than the programs do. It also differs by protocol, because the reading waits for earlier instructions.
fn latency(text: &mut String, rounds: &[Round]) {
    for (handlers, grouping, limit) in LATENCY_LIMITS {
        let net = |program, protocol: &str| {
            let chosen = |round: &Round| round.handlers == handlers && round.traffic.starts_with(protocol);
            Some(round::cost(rounds, program, chosen)?.net)
        };
        let clocks: Vec<_> = PROTOCOLS.iter().filter_map(|name| Some((*name, net(CLOCK_ALONE, name)?))).collect();
        if clocks.is_empty() {
            continue;
        }
        let terms = clocks.iter().map(|(name, clock)| format!("{:.1} {} under {name}", clock.value, clock.bracketed()));
        let _ = writeln!(
            text,
            "\na latency event, {grouping}, ns relative to the empty program; the clock takes {}\n\
             {:<26}{:<10}{:<26}{:<18}{:<18}by the clock",
            terms.collect::<Vec<_>>().join(", "),
            "PROGRAM",
            "TRAFFIC",
            "   net",
            format!("at most {limit}"),
            "net/clock"
        );
        for program in round::of_latency(rounds) {
            for (protocol, clock) in &clocks {
                let Some(net) = net(program, protocol) else { continue };
                let (figure, share) = (format!("{:6.1} {}", net.value, net.bracketed()), net.value / clock.value);
                let (here, there) = (verdict(net.value, limit), verdict(share, limit / CLOCK));
                let _ = writeln!(text, "{program:<26}{protocol:<10}{figure:<26}{here:<18}{share:<18.2}{there}");
            }
        }
    }
    let _ = writeln!(text, "by the clock: the limits are for a clock that takes {CLOCK}");
}

/// Writes the total cost of the layers of a packet's path.
fn packet_path(text: &mut String, rounds: &[Round], kernel: &str, path: &PacketPath) {
    let net = |program: &&str| {
        let chosen = |round: &Round| round.handlers == WITHOUT_WAITS && round.traffic == path.traffic;
        Some(round::cost(rounds, program, chosen)?.net.value)
    };
    let PacketPath { name, layers, netstacklat, .. } = path;
    let Some(costs) = layers.iter().map(net).collect::<Option<Vec<f64>>>() else {
        let _ = writeln!(text, "\nfentry does not serve all of the {name} on {kernel}");
        return;
    };
    let (sum, terms) = (costs.iter().sum::<f64>(), costs.iter().map(|net| format!("{net:.1}")).collect::<Vec<_>>());
    let share = sum / netstacklat;
    let _ = writeln!(
        text,
        "\n{name} ({}): {} = {sum:.1} instructions above empty programs, {share:.3} of netstacklat's {netstacklat} (6.12); \
         at most {SHARE_LIMIT}: {}",
        layers.join(" + "),
        terms.join(" + "),
        verdict(share, SHARE_LIMIT)
    );
}

/// Writes what the selection of slow packets adds to the layers of a packet's path.
fn selection(text: &mut String, rounds: &[Round], path: &PacketPath) {
    let cost = |handlers: &str, of: fn(&Cost) -> f64| {
        let chosen = |round: &Round| round.handlers == handlers && round.traffic == path.traffic;
        let layers = path.layers.iter();
        layers.map(|program| round::cost(rounds, program, chosen).map(|cost| of(&cost))).sum::<Option<f64>>()
    };
    let product: fn(&Cost) -> f64 = |cost| cost.product.value;
    let net: fn(&Cost) -> f64 = |cost| cost.net.value;
    let [Some(with), Some(without)] = [ALL, WITHOUT_SLOW_PACKETS].map(|handlers| cost(handlers, product)) else {
        return;
    };
    let [Some(net_with), Some(net_without)] = [ALL, WITHOUT_SLOW_PACKETS].map(|handlers| cost(handlers, net)) else {
        return;
    };
    let _ = writeln!(
        text,
        "\nselection of slow packets, {}: {with:.1} instead of {without:.1} instructions, {:+.1}%; above empty programs \
         {net_with:.1} instead of {net_without:.1}, {:+.1}%",
        path.name,
        (with / without - 1.0) * 100.0,
        (net_with / net_without - 1.0) * 100.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of UDP over IPv4. Each program has a cost for the product; an empty program takes 10.
    fn rounds(handlers: &str, programs: &[(&str, u64)]) -> String {
        let programs: Vec<String> = programs
            .iter()
            .map(|(name, each)| {
                let product = each * 100;
                format!(
                    r#""{name}":{{"latency":true,"product":{{"runs":100,"nanoseconds":{product}}},"other":{{"runs":100,"nanoseconds":1000}}}}"#
                )
            })
            .collect();
        format!(
            r#"{{"handlers":"{handlers}","order":"other_first","traffic":"udp_ipv4","messages":100,"programs":{{{}}}}}"#,
            programs.join(",")
        )
    }

    fn rendered(lines: &[String], stopwatch: &Stopwatch) -> String {
        render(&round::parse(&lines.join("\n")).unwrap(), stopwatch)
    }

    #[test]
    fn the_native_verdicts_follow_the_limits() {
        let line = |handlers, cost| {
            let programs = [("cgroup_ingress", cost), (CLOCK_ALONE, 62)];
            let text = rendered(&[rounds(handlers, &programs)], &Stopwatch::Nanoseconds);
            let line = text.lines().rfind(|line| line.starts_with("cgroup_ingress")).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        // The clock takes 52, twice the time on the reference machine.
        assert_eq!(line("all", 60), ["cgroup_ingress", "udp", "50.0", "[50.0,", "50.0]", "kept", "0.96", "kept"]);
        assert_eq!(line("all", 61)[5..], ["MISSED", "0.98", "kept"]);
        assert_eq!(line("all", 111)[5..], ["MISSED", "1.94", "MISSED"]);
        assert_eq!(line("by_workload", 85)[5..], ["kept", "1.44", "kept"]);
        assert_eq!(line("by_workload_by_cpu", 161)[5..], ["MISSED", "2.90", "MISSED"]);
    }

    #[test]
    fn the_cost_of_a_path_is_the_sum_of_its_layers() {
        let guest = || Stopwatch::Instructions("6.12".to_owned());
        let layers: Vec<_> = PATHS[0].layers.iter().map(|layer| (*layer, 161)).collect();
        let text = rendered(&[rounds(WITHOUT_WAITS, &layers)], &guest());
        assert!(text.contains("= 604.0 instructions above empty programs, 0.645 of netstacklat's 936"), "{text}");
        assert!(text.contains("at most 0.64: MISSED"), "{text}");
        assert!(
            rendered(&[rounds(WITHOUT_WAITS, &layers[..3])], &guest())
                .contains("fentry does not serve all of the four layers")
        );
    }

    #[test]
    fn the_selection_is_the_difference_of_two_sets_of_handlers() {
        let layers = |cost| PATHS[0].layers.iter().map(|layer| (*layer, cost)).collect::<Vec<_>>();
        let lines = [rounds(ALL, &layers(60)), rounds(WITHOUT_SLOW_PACKETS, &layers(50))];
        let text = rendered(&lines, &Stopwatch::Instructions("6.12".to_owned()));
        assert!(text.contains("240.0 instead of 200.0 instructions, +20.0%"), "{text}");
        assert!(text.contains("200.0 instead of 160.0, +25.0%"), "{text}");
    }

    #[test]
    fn the_shared_hook_is_reported_with_one_and_two_handlers() {
        let lines = [rounds("all", &[(SHARED_HOOK, 98)]), rounds(WITHOUT_WAITS, &[(SHARED_HOOK, 71)])];
        let text = rendered(&lines, &Stopwatch::Nanoseconds);
        assert!(
            text.contains("both handlers 88.0 [88.0, 88.0] above the empty program, softirq_wait switched off 61.0")
        );
    }
}
