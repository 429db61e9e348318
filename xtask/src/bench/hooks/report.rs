//! The costs as a table, and what is promised of them.

use std::fmt::Write as _;

use super::round::{self, Cost, Round};
use crate::bench::verdict;

/// What the kernel's statistics counted.
pub enum Stopwatch {
    /// Time.
    Nanoseconds,
    /// A guest's instructions, under this kernel.
    Instructions(String),
}

/// The most that recording a latency may cost above an empty program, natively, in nanoseconds.
const LATENCY_LIMIT: f64 = 55.0;
/// A packet's way through programs, a layer each.
struct Way {
    name: &'static str,
    traffic: &'static str,
    layers: &'static [&'static str],
    /// What netstacklat spends on it above empty programs on the same hooks, in instructions of the same guest under 6.12.
    netstacklat: f64,
}

/// Both ways over IPv4. A TCP segment on a veth pair bears its departure time at `ip`, where there is nothing to measure.
const WAYS: [Way; 2] = [
    Way {
        name: "four layers of one UDP packet",
        traffic: "udp_ipv4",
        layers: &["ip_rcv_core", "udp_rcv", "udp_enqueue_schedule_skb", "skb_consume_udp"],
        netstacklat: 936.0,
    },
    Way {
        name: "three layers of one TCP segment",
        traffic: "tcp_ipv4",
        layers: &["tcp_v4_rcv", "tcp_queue_rcv", "tcp_recv_timestamp"],
        netstacklat: 781.0,
    },
];
/// The most that the same may cost here, as a share of it.
const SHARE_LIMIT: f64 = 0.6;
const SHARED_HOOK: &str = "softirq_entry";
const ALL: &str = "all";
const WITHOUT_WAITS: &str = "without_waits";

/// The table and the verdicts.
pub fn render(rounds: &[Round], stopwatch: &Stopwatch) -> String {
    let unit = match stopwatch {
        Stopwatch::Nanoseconds => "ns",
        Stopwatch::Instructions(_) => "instructions",
    };
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
            let chosen = |round: &Round| round.handlers == ALL && round.traffic == traffic;
            if let Some(cost) = round::cost(rounds, program, chosen) {
                line(&mut text, program, traffic, &cost);
            }
        }
    }
    shared(&mut text, rounds);
    match stopwatch {
        Stopwatch::Nanoseconds => latency(&mut text, rounds),
        Stopwatch::Instructions(kernel) => WAYS.iter().for_each(|path| way(&mut text, rounds, kernel, path)),
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

/// The hook that serves two signals, with both on and with one.
fn shared(text: &mut String, rounds: &[Round]) {
    let with = |all: bool| round::cost(rounds, SHARED_HOOK, |round| (round.handlers == ALL) == all);
    if let (Some(both), Some(one)) = (with(true), with(false)) {
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

/// What recording one latency costs where the host lets it be measured.
fn latency(text: &mut String, rounds: &[Round]) {
    const PROGRAM: &str = "cgroup_ingress";
    let Some(cost) = round::cost(rounds, PROGRAM, |_| true) else {
        let _ = writeln!(text, "\n{PROGRAM} is not attached here: another program serves the hook");
        return;
    };
    let _ = writeln!(
        text,
        "\nrecording a latency ({PROGRAM}, all {} rounds): {:.1} ns {} above the empty program; at most {LATENCY_LIMIT}: {}",
        cost.rounds,
        cost.net.value,
        cost.net.bracketed(),
        verdict(cost.net.value, LATENCY_LIMIT)
    );
}

/// What the layers of a packet's way cost together.
fn way(text: &mut String, rounds: &[Round], kernel: &str, way: &Way) {
    let net = |program: &&str| {
        let chosen = |round: &Round| round.handlers == WITHOUT_WAITS && round.traffic == way.traffic;
        Some(round::cost(rounds, program, chosen)?.net.value)
    };
    let Way { name, layers, netstacklat, .. } = way;
    let Some(costs) = layers.iter().map(net).collect::<Option<Vec<f64>>>() else {
        let _ = writeln!(text, "\nnot all of the {name} are served by fentry on {kernel}");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs under UDP over IPv4, each with a product's cost; empty ones take 10.
    fn rounds(handlers: &str, programs: &[(&str, u64)]) -> String {
        let programs: Vec<String> = programs
            .iter()
            .map(|(name, each)| {
                let product = each * 100;
                format!(
                    r#""{name}":{{"product":{{"runs":100,"nanoseconds":{product}}},"other":{{"runs":100,"nanoseconds":1000}}}}"#
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
    fn the_native_verdict_follows_the_limit() {
        let text = |cost| rendered(&[rounds("all", &[("cgroup_ingress", cost)])], &Stopwatch::Nanoseconds);
        assert!(text(65).contains("55.0 ns [55.0, 55.0] above the empty program; at most 55: kept"), "{}", text(65));
        assert!(text(66).contains("at most 55: MISSED"));
        assert!(rendered(&[rounds("all", &[("udp_rcv", 1)])], &Stopwatch::Nanoseconds).contains("not attached here"));
    }

    #[test]
    fn a_ways_cost_is_the_sum_of_its_layers() {
        let guest = || Stopwatch::Instructions("6.12".to_owned());
        let layers: Vec<_> = WAYS[0].layers.iter().map(|layer| (*layer, 154)).collect();
        let text = rendered(&[rounds(WITHOUT_WAITS, &layers)], &guest());
        assert!(text.contains("= 576.0 instructions above empty programs, 0.615 of netstacklat's 936"), "{text}");
        assert!(text.contains("at most 0.6: MISSED"), "{text}");
        assert!(rendered(&[rounds(WITHOUT_WAITS, &layers[..3])], &guest()).contains("not all of the four layers"));
    }

    #[test]
    fn both_states_of_the_shared_hook_stand_side_by_side() {
        let lines = [rounds("all", &[(SHARED_HOOK, 98)]), rounds(WITHOUT_WAITS, &[(SHARED_HOOK, 71)])];
        let text = rendered(&lines, &Stopwatch::Nanoseconds);
        assert!(
            text.contains("both handlers 88.0 [88.0, 88.0] above the empty program, softirq_wait switched off 61.0")
        );
    }
}
