//! What `receiver/benches/hooks` tells of a round, and what follows for each program.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::bench::statistics::Median;

/// One round.
#[derive(Debug, Deserialize)]
pub struct Round {
    /// Which handlers are on: `all`, or all but one.
    pub handlers: String,
    /// The kind of traffic.
    pub traffic: String,
    /// Requests and replies.
    messages: u64,
    programs: BTreeMap<String, Pair>,
}

/// The counts of the product's program and of the empty one on the same hook.
#[derive(Debug, Deserialize)]
struct Pair {
    product: Counts,
    empty: Counts,
}

#[derive(Debug, Deserialize)]
struct Counts {
    runs: u64,
    nanoseconds: u64,
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
    /// The empty program.
    pub empty: Median,
    /// The product's less the empty one's, paired by round.
    pub net: Median,
}

/// A program's cost in those rounds that are chosen. A round counts if a tenth of its messages or more were events;
/// fewer are somebody else's packets.
pub fn cost(rounds: &[Round], program: &str, chosen: impl Fn(&Round) -> bool) -> Option<Cost> {
    let pairs = rounds.iter().filter(|round| chosen(round)).filter_map(|round| {
        let pair = round.programs.get(program)?;
        let enough = |counts: &Counts| counts.runs > 0 && counts.runs * 10 >= round.messages;
        (enough(&pair.product) && enough(&pair.empty)).then_some(pair)
    });
    let pairs: Vec<&Pair> = pairs.collect();
    let median = |of: &dyn Fn(&Pair) -> f64| Median::of(pairs.iter().map(|pair| of(pair)).collect());
    Some(Cost {
        rounds: pairs.len(),
        events: pairs.iter().map(|pair| pair.product.runs).sum(),
        product: median(&|pair| pair.product.nanoseconds_each())?,
        empty: median(&|pair| pair.empty.nanoseconds_each())?,
        net: median(&|pair| pair.product.nanoseconds_each() - pair.empty.nanoseconds_each())?,
    })
}

/// The names of all programs that ran.
pub fn programs(rounds: &[Round]) -> Vec<&str> {
    let mut names: Vec<&str> = rounds.iter().flat_map(|round| round.programs.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(product: (u64, u64), empty: (u64, u64)) -> String {
        let counts = |(runs, nanoseconds): (u64, u64)| format!(r#"{{"runs":{runs},"nanoseconds":{nanoseconds}}}"#);
        let pair = format!(r#"{{"product":{},"empty":{}}}"#, counts(product), counts(empty));
        format!(
            r#"{{"handlers":"all","order":"empty_first","traffic":"udp_ipv4","messages":100,"programs":{{"p":{pair}}}}}"#
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
