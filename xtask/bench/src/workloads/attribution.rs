//! Cost of finding the workload of an event.

use std::fmt::Write as _;

use crate::{
    hooks::round::{self, Round},
    verdict,
};

/// Sets of handlers: grouped programs paired with ungrouped ones, then with empty ones, for both versions of cgroups.
pub const HANDLERS: [&str; 4] = ["attribution", "attribution_by_cpu", "by_workload", "by_workload_by_cpu"];
/// Sets with ungrouped programs for comparison.
const BESIDE_UNGROUPED: [(&str, &str); 2] = [("attribution", "cgroup v2"), ("attribution_by_cpu", "cgroup v1")];
/// Sets with empty programs for comparison.
const BESIDE_EMPTY: [(&str, &str); 2] = [("by_workload", "cgroup v2"), ("by_workload_by_cpu", "cgroup v1")];
/// Programs that only store the owner of a socket.
const OF_SOCKETS: [&str; 2] = ["sock_recv_length", "socket_created"];
/// The program with a limit: it processes every packet.
const LIMITED: &str = "cgroup_ingress";
/// Maximum additional cost of [`LIMITED`] in nanoseconds.
const LIMIT: f64 = 25.0;

/// Returns the tables and the verdict.
pub fn render(rounds: &[Round]) -> String {
    let mut text = "cost of attribution to workloads per event, ns: grouped minus ungrouped, both on one hook. Rounds where \
                    the grouped\nprogram ran first are paired with rounds where the other did, and the mean of both is taken; \
                    medians, in brackets their\n95% intervals\n"
        .to_owned();
    table(&mut text, ["grouped", "ungrouped"], rounds, &BESIDE_UNGROUPED, |_| true);
    text.push_str("\nprograms that only store the owner of a socket, relative to empty ones, ns\n");
    table(&mut text, ["product", "empty"], rounds, &BESIDE_EMPTY, |program| OF_SOCKETS.contains(&program));
    text
}

fn table(
    text: &mut String,
    [product, other]: [&str; 2],
    rounds: &[Round],
    handlers: &[(&str, &str)],
    wanted: impl Fn(&str) -> bool,
) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<26}{:<11}{:>7}{:>9}  {product:>9}{other:>10}  {:<20}",
        "PROGRAM", "HANDLERS", "ROUNDS", "EVENTS", "  difference"
    );
    for program in round::programs(rounds).into_iter().filter(|program| wanted(program)) {
        for (name, version) in handlers {
            let chosen = |round: &Round| round.handlers == *name;
            let (Some(cost), Some(net)) =
                (round::cost(rounds, program, chosen), round::balanced(rounds, program, chosen))
            else {
                continue;
            };
            let kept = if program == LIMITED {
                format!("  at most {LIMIT:.0} ns: {}", verdict(net.value, LIMIT))
            } else {
                String::new()
            };
            let _ = writeln!(
                text,
                "{program:<26}{version:<11}{:>7}{:>9}  {:>9.1}{:>10.1}  {:>6.1} {}{kept}",
                cost.rounds,
                cost.events,
                cost.product.value,
                cost.other.value,
                net.value,
                net.bracketed()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(handlers: &str, program: &str, product: u64) -> String {
        let round = |order: &str| {
            format!(
                r#"{{"handlers":"{handlers}","order":"{order}","traffic":"udp_ipv4","messages":100,"programs":{{"{program}":{{"latency":false,"product":{{"runs":100,"nanoseconds":{}}},"other":{{"runs":100,"nanoseconds":7000}}}}}}}}"#,
                product * 100
            )
        };
        [round("product_first"), round("other_first")].join("\n")
    }

    #[test]
    fn the_limit_applies_to_one_program_and_both_cgroup_versions() {
        let lines = [
            rounds("attribution", "cgroup_ingress", 95),
            rounds("attribution_by_cpu", "cgroup_ingress", 96),
            rounds("attribution", "softirq_entry", 200),
            rounds("by_workload", "sock_recv_length", 100),
        ];
        let text = render(&round::parse(&lines.join("\n")).unwrap());
        assert!(text.contains("25.0 [25.0, 25.0]  at most 25 ns: kept"), "{text}");
        assert!(text.contains("26.0 [26.0, 26.0]  at most 25 ns: MISSED"), "{text}");
        assert_eq!(text.matches("at most").count(), 2, "{text}");
        assert!(text.contains("30.0 [30.0, 30.0]"), "{text}");
    }
}
