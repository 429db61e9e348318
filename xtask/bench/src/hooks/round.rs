//! What `receiver/benches/hooks` tells of a round, and what follows for each program.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::statistics::Median;

/// One round.
#[derive(Debug, Deserialize)]
pub struct Round {
    /// What the programs do, and what is beside them.
    pub handlers: String,
    order: Order,
    /// The kind of traffic.
    pub traffic: String,
    /// Requests and replies.
    messages: u64,
    programs: BTreeMap<String, Pair>,
}

/// Which of the two programs on a hook runs first, and pays for what is not in the caches.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Order {
    ProductFirst,
    OtherFirst,
}

/// The counts of the product's program and of the other on the same hook.
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
    /// A program's counts, where a tenth of the messages or more were events for it; fewer are somebody else's packets.
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

/// Reads the rounds, one JSON object a line.
pub fn parse(text: &str) -> anyhow::Result<Vec<Round>> {
    let parsed = text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no round: {line}")));
    let rounds: Vec<Round> = parsed.collect::<anyhow::Result<_>>()?;
    ensure!(!rounds.is_empty(), "the benchmark told of no round");
    Ok(rounds)
}

/// What an event costs, in the guest's or the machine's nanoseconds.
#[derive(Debug)]
pub struct Cost {
    /// Rounds that it is made of.
    pub rounds: usize,
    /// Events, both programs' the same but for stray ones.
    pub events: u64,
    /// The product's program.
    pub product: Median,
    /// The other program.
    pub other: Median,
    /// The product's less the other's, paired by round.
    pub net: Median,
}

/// A program's cost in those rounds that are chosen.
pub fn cost(rounds: &[Round], program: &str, chosen: impl Fn(&Round) -> bool) -> Option<Cost> {
    let pairs: Vec<&Pair> =
        rounds.iter().filter(|round| chosen(round)).filter_map(|round| round.pair(program)).collect();
    let median = |of: &dyn Fn(&Pair) -> f64| Median::of(pairs.iter().map(|pair| of(pair)).collect());
    Some(Cost {
        rounds: pairs.len(),
        events: pairs.iter().map(|pair| pair.product.runs).sum(),
        product: median(&|pair| pair.product.nanoseconds_each())?,
        other: median(&|pair| pair.other.nanoseconds_each())?,
        net: median(&|pair| pair.net())?,
    })
}

/// The product's less the other's, by neither's advantage: each round where the product's ran first is paired with one of
/// the same traffic where the other did, and the mean of their differences taken.
pub fn balanced(rounds: &[Round], program: &str, chosen: impl Fn(&Round) -> bool) -> Option<Median> {
    let mut nets: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
    for round in rounds.iter().filter(|round| chosen(round)) {
        if let Some(pair) = round.pair(program) {
            let [first, second] = nets.entry(&round.traffic).or_default();
            if round.order == Order::ProductFirst { first } else { second }.push(pair.net());
        }
    }
    let means = |[first, second]: [Vec<f64>; 2]| first.into_iter().zip(second).map(|(one, other)| (one + other) / 2.0);
    Median::of(nets.into_values().flat_map(means).collect())
}

/// The names of all programs that ran.
pub fn programs(rounds: &[Round]) -> Vec<&str> {
    names(rounds, |_| true)
}

/// The names of those that measure how long packets take.
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
    fn the_difference_is_taken_in_each_round() {
        // A machine that slowed down for one round slowed both programs.
        let rounds = [round((100, 8_000), (100, 3_000)), round((100, 18_000), (100, 13_000))];
        let cost = cost(&parsed(&rounds), "p", |_| true).unwrap();
        assert_eq!((cost.rounds, cost.events), (2, 200));
        assert_eq!((cost.net.value, cost.net.interval), (50.0, (50.0, 50.0)));
        assert_eq!(cost.product.value, 130.0);
    }

    #[test]
    fn whoever_runs_first_has_no_disadvantage() {
        // The first program takes 30 more, whichever it is, and a slow machine three times as long.
        let rounds = [
            ordered("product_first", (100, 10_000), (100, 5_000)),
            ordered("product_first", (100, 30_000), (100, 15_000)),
            ordered("other_first", (100, 7_000), (100, 8_000)),
            ordered("other_first", (100, 21_000), (100, 24_000)),
        ];
        let net = balanced(&parsed(&rounds), "p", |_| true).unwrap();
        assert_eq!((net.value, net.interval), (40.0, (20.0, 60.0)));
        assert!(balanced(&parsed(&rounds[..2]), "p", |_| true).is_none(), "one order says nothing");
    }

    #[test]
    fn strangers_packets_and_other_programs_are_left_out() {
        let rounds = parsed(&[round((9, 8_000), (9, 3_000))]);
        assert!(cost(&rounds, "p", |_| true).is_none());
        let rounds = parsed(&[round((100, 8_000), (100, 3_000))]);
        assert!(cost(&rounds, "q", |_| true).is_none());
        assert!(cost(&rounds, "p", |round| round.traffic == "tcp_ipv4").is_none());
        assert_eq!(programs(&rounds), ["p"]);
    }

    #[test]
    fn what_is_no_round_is_named() {
        assert!(parse("").is_err());
        assert!(format!("{:#}", parse("hello").unwrap_err()).contains("hello"));
    }
}
