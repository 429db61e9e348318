//! Checks of published queries against the registry: every metric exists in Prometheus, and every label belongs to its metric.

pub mod dashboards;
mod names;
mod tokens;

use std::collections::BTreeSet;

use undercurrent::{catalogue::dashboards as generated, export::prometheus as scraped};

pub use self::names::Names;
use self::tokens::{Token, tokens};

/// Words before a list of labels.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words of the language that are not names of metrics.
const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// Returns the faults of a query.
pub fn faults(names: &Names, query: &str) -> Vec<String> {
    let tokens = tokens(query);
    let mut faults = Vec::new();
    let mut created = created_labels(&tokens);
    created.insert("__name__");
    let mut at = 0;
    while at < tokens.len() {
        let next = tokens.get(at + 1);
        match tokens[at] {
            Token::Word(word) if BEFORE_LABELS.contains(&word) => {
                while tokens.get(at).is_some_and(|token| *token != Token::Sign(')')) {
                    at += 1;
                    let Some(Token::Word(label)) = tokens.get(at) else { continue };
                    if !created.contains(label) && !names.has_label(label) {
                        faults.push(format!("no metric has the label {label}"));
                    }
                }
            }
            Token::Word(word) if WORDS.contains(&word) => {}
            // A function, or an aggregation.
            Token::Word(_) if matches!(next, Some(Token::Sign('(') | Token::Word("by" | "without"))) => {}
            Token::Word(metric) => {
                if !names.has_metric(metric) {
                    faults.push(format!("no metric has the name {metric}"));
                }
                if next == Some(&Token::Sign('{')) {
                    at = matchers(names, Some(metric), &tokens, at + 1, &mut faults);
                }
            }
            Token::Sign('{') => at = matchers(names, None, &tokens, at, &mut faults),
            _ => {}
        }
        at += 1;
    }
    faults
}

/// Checks the matchers in braces. Returns the place of the closing brace.
fn matchers(
    names: &Names,
    metric: Option<&str>,
    tokens: &[Token<'_>],
    mut at: usize,
    faults: &mut Vec<String>,
) -> usize {
    while tokens.get(at).is_some_and(|token| *token != Token::Sign('}')) {
        if let Token::Word(label) = tokens[at] {
            let value = tokens[at..].iter().find_map(|token| match token {
                Token::Text(value) => Some(*value),
                _ => None,
            });
            faults.extend(names.fault_of_matcher(metric, label, value.unwrap_or_default()));
        }
        at += 1;
    }
    at
}

/// Returns the labels that `label_replace` and `label_join` create: the first text in their arguments that is followed by another text.
fn created_labels<'a>(tokens: &[Token<'a>]) -> BTreeSet<&'a str> {
    let is_call = |token: &Token<'_>| matches!(token, Token::Word("label_replace" | "label_join"));
    let texts = tokens.windows(3).filter_map(|window| match window {
        [Token::Text(label), Token::Sign(','), Token::Text(_)] => Some(*label),
        _ => None,
    });
    if tokens.iter().any(is_call) { texts.collect() } else { BTreeSet::new() }
}

/// The table of docs/prometheus.md has the names of a real Prometheus.
#[test]
fn scraped_series_have_the_names_of_the_otlp_receiver() {
    for (name, metric) in Names::read().metrics() {
        assert_eq!(scraped::metric(metric), name, "{}", metric.name);
    }
    assert_eq!(names::promoted(), scraped::PROMOTED);
}

#[test]
fn every_published_query_has_existing_names() {
    let names = Names::read();
    let queries = [dashboards::queries(&generated::files("")), names::of_page(), names::of_rules()].concat();
    assert!(queries.len() > 60, "{} queries", queries.len());
    for (place, query) in queries {
        assert_eq!(faults(&names, &query), Vec::<String>::new(), "{place}: {query}");
    }
}

#[test]
fn every_alert_has_its_runbook() {
    let anchors = dashboards::Anchors::default();
    let runbooks = names::runbooks();
    assert!(runbooks.len() >= 8, "{runbooks:?}");
    for (alert, url) in runbooks {
        assert!(url.ends_with(&format!("#{}", alert.to_lowercase())), "{alert} has the runbook {url}");
        anchors.assert_exists(&url);
    }
}

#[test]
fn wrong_names_are_faults() {
    let names = Names::read();
    let one = |query: &str| faults(&names, query).len();
    assert_eq!(one("sum by (host_name) (rate(undercurrent_tcp_rtt_seconds[1m]))"), 0);
    assert_eq!(one("rate(undercurrent_tcp_rtt[1m])"), 1);
    assert_eq!(one("sum by (hostname) (rate(undercurrent_tcp_rtt_seconds[1m]))"), 1);
    assert_eq!(one(r#"undercurrent_tcp_rtt_seconds{undercurrent_network_layer="ip"}"#), 1);
    assert_eq!(one(r#"undercurrent_network_receive_duration_seconds{undercurrent_network_layer="socket"}"#), 0);
    assert_eq!(one(r#"undercurrent_cpu_time_seconds_total{undercurrent_cpu_use="networks"}"#), 1);
    assert_eq!(one(r#"undercurrent_cpu_time_seconds_total{undercurrent_cpu_use=~"network|idle"}"#), 1);
}
