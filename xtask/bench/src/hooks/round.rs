//! Parses the output of `receiver/benches/hooks` and computes the cost of each program.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::statistics::Median;

/// One round.
#[derive(Debug, Deserialize)]
pub struct Round {
    /// The set of handlers and of programs for comparison.
    pub handlers: String,
    order: Order,
    /// The kind of traffic.
    pub traffic: String,
    /// Number of requests and replies.
    messages: u64,
    programs: BTreeMap<String, Pair>,
}

/// The program on a hook that runs first and therefore has more cache misses.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Order {
    ProductFirst,
    OtherFirst,
}

/// Counts of two programs on one hook: the product's program and the program for comparison.
#[derive(Debug, Deserialize)]
struct Pair {
    latency: bool,
    product: Counts,
    other: Counts,
}

impl Pair {
    fn net(&self) -> f64 {
        self.product.nanoseconds_each() - self.other.nanoseconds_each()
    }
}

#[derive(Debug, Deserialize)]
struct Counts {
    runs: u64,
    nanoseconds: u64,
}

impl Round {
    /// Returns a program's counts if it ran for at least a tenth of the messages. Fewer runs are caused by unrelated packets.
    fn pair(&self, program: &str) -> Option<&Pair> {
        let enough = |counts: &Counts| counts.runs > 0 && counts.runs * 10 >= self.messages;
        self.programs.get(program).filter(|pair| enough(&pair.product) && enough(&pair.other))
    }
}

impl Counts {
    fn nanoseconds_each(&self) -> f64 {
        self.nanoseconds as f64 / self.runs as f64
    }
}

/// Parses rounds, one JSON object per line.
pub fn parse(text: &str) -> anyhow::Result<Vec<Round>> {
    let parsed = text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not a round: {line}")));
    let rounds: Vec<Round> = parsed.collect::<anyhow::Result<_>>()?;
    ensure!(!rounds.is_empty(), "the benchmark printed no round");
    Ok(rounds)
}

/// Cost of an event in nanoseconds of the machine or the guest.
#[derive(Debug)]
pub struct Cost {
    /// Number of rounds.
    pub rounds: usize,
    /// Number of events of the product's program.
    pub events: u64,
    /// Cost of the product's program.
    pub product: Median,
    /// Cost of the program for comparison.
    pub other: Median,
    /// Difference of the two costs, paired by round.
    pub net: Median,
}

/// Returns a program's cost in the selected rounds.
pub fn cost(rounds: &[Round], program: &str, chosen: impl Fn(&Round) -> bool) -> Option<Cost> {
    let pairs: Vec<&Pair> =
        rounds.iter().filter(|round| chosen(round)).filter_map(|round| round.pair(program)).collect();
    let median = |of: &dyn Fn(&Pair) -> f64| Median::new(pairs.iter().map(|pair| of(pair)).collect());
    Some(Cost {
        rounds: pairs.len(),
        events: pairs.iter().map(|pair| pair.product.runs).sum(),
        product: median(&|pair| pair.product.nanoseconds_each())?,
        other: median(&|pair| pair.other.nanoseconds_each())?,
        net: median(&|pair| pair.net())?,
    })
}

/// Returns the difference of the costs, independent of the order of attachment. Each round with the product's program first is paired with
/// a round of equal traffic in the other order, and the mean of their differences is taken.
pub fn balanced(rounds: &[Round], program: &str, chosen: impl Fn(&Round) -> bool) -> Option<Median> {
    let mut nets: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
    for round in rounds.iter().filter(|round| chosen(round)) {
        if let Some(pair) = round.pair(program) {
            let [first, second] = nets.entry(&round.traffic).or_default();
            if round.order == Order::ProductFirst { first } else { second }.push(pair.net());
        }
    }
    let means = |[first, second]: [Vec<f64>; 2]| first.into_iter().zip(second).map(|(one, other)| (one + other) / 2.0);
    Median::new(nets.into_values().flat_map(means).collect())
}

/// Returns the names of all programs.
pub fn programs(rounds: &[Round]) -> Vec<&str> {
    names(rounds, |_| true)
}

/// Returns the names of the programs that measure latency.
pub fn of_latency(rounds: &[Round]) -> Vec<&str> {
    names(rounds, |pair| pair.latency)
}

fn names(rounds: &[Round], wanted: impl Fn(&Pair) -> bool) -> Vec<&str> {
    let programs = rounds.iter().flat_map(|round| &round.programs).filter(|(_, pair)| wanted(pair));
    let mut names: Vec<&str> = programs.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(product: (u64, u64), other: (u64, u64)) -> String {
        ordered("other_first", product, other)
    }

    fn ordered(order: &str, product: (u64, u64), other: (u64, u64)) -> String {
        let counts = |(runs, nanoseconds): (u64, u64)| format!(r#"{{"runs":{runs},"nanoseconds":{nanoseconds}}}"#);
        let pair = format!(r#"{{"latency":false,"product":{},"other":{}}}"#, counts(product), counts(other));
        format!(
            r#"{{"handlers":"all","order":"{order}","traffic":"udp_ipv4","messages":100,"programs":{{"p":{pair}}}}}"#
        )
    }

    fn parsed(rounds: &[String]) -> Vec<Round> {
        parse(&rounds.join("\n")).unwrap()
    }

    #[test]
    fn differences_are_paired_by_round() {
        // The machine slows down for one round, so both programs take longer.
        let rounds = [round((100, 8_000), (100, 3_000)), round((100, 18_000), (100, 13_000))];
        let cost = cost(&parsed(&rounds), "p", |_| true).unwrap();
        assert_eq!((cost.rounds, cost.events), (2, 200));
        assert_eq!((cost.net.value, cost.net.interval), (50.0, (50.0, 50.0)));
        assert_eq!(cost.product.value, 130.0);
    }

    #[test]
    fn the_order_of_attachment_has_no_effect() {
        // The first program takes 30 longer in both orders; the slow rounds take three times as long.
        let rounds = [
            ordered("product_first", (100, 10_000), (100, 5_000)),
            ordered("product_first", (100, 30_000), (100, 15_000)),
            ordered("other_first", (100, 7_000), (100, 8_000)),
            ordered("other_first", (100, 21_000), (100, 24_000)),
        ];
        let net = balanced(&parsed(&rounds), "p", |_| true).unwrap();
        assert_eq!((net.value, net.interval), (40.0, (20.0, 60.0)));
        assert!(balanced(&parsed(&rounds[..2]), "p", |_| true).is_none(), "one order is not enough");
    }

    #[test]
    fn unrelated_packets_and_other_programs_are_excluded() {
        let rounds = parsed(&[round((9, 8_000), (9, 3_000))]);
        assert!(cost(&rounds, "p", |_| true).is_none());
        let rounds = parsed(&[round((100, 8_000), (100, 3_000))]);
        assert!(cost(&rounds, "q", |_| true).is_none());
        assert!(cost(&rounds, "p", |round| round.traffic == "tcp_ipv4").is_none());
        assert_eq!(programs(&rounds), ["p"]);
    }

    #[test]
    fn an_error_contains_the_line() {
        assert!(parse("").is_err());
        assert!(format!("{:#}", parse("hello").unwrap_err()).contains("hello"));
    }
}
