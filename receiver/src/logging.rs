//! Logs on standard error. Standard output is reserved for outputs.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::environment::{Environment, Ignored, value};

const RUST_LOG: &str = "RUST_LOG";
const OTEL_LOG_LEVEL: &str = "OTEL_LOG_LEVEL";
/// Below this level, libraries log every frame and connection.
const LIBRARIES: &str = "warn";

/// Initializes logging for the process, and warns of an invalid level. Later calls have no effect.
pub fn start<W, F>(environment: Environment<'_>, writer: F)
where
    W: io::Write,
    F: Fn() -> W + Send + Sync + 'static,
{
    let (filter, ignored) = filter(environment);
    let subscriber = tracing_subscriber::fmt()
        .compact()
        .with_writer(writer)
        .with_ansi(colours(io::stderr().is_terminal(), environment))
        .with_env_filter(filter);
    if subscriber.try_init().is_ok()
        && let Some(ignored) = ignored
    {
        tracing::warn!("{ignored}");
    }
}

/// Any non-empty value of NO_COLOR disables colours (no-color.org).
fn colours(terminal: bool, environment: Environment<'_>) -> bool {
    terminal && environment("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the log filter: `RUST_LOG` if set, else the sidecar's messages at `OTEL_LOG_LEVEL`, else at `info`.
fn filter(environment: Environment<'_>) -> (EnvFilter, Option<Ignored>) {
    let own = |level: &str| EnvFilter::new(format!("{LIBRARIES},undercurrent={level}"));
    if let Some(directives) = value(environment, RUST_LOG) {
        return match EnvFilter::try_new(&directives) {
            Ok(filter) => (filter, None),
            Err(error) => {
                let problem = format!("{error}; write a level, or target=level,target=level");
                (own("info"), Some(Ignored { variable: RUST_LOG, value: directives, problem }))
            }
        };
    }
    let Some(name) = value(environment, OTEL_LOG_LEVEL) else { return (own("info"), None) };
    match name.trim().to_ascii_lowercase().as_str() {
        "none" | "off" => (EnvFilter::new("off"), None),
        level @ ("error" | "warn" | "info" | "debug" | "trace") => (own(level), None),
        _ => {
            let problem = "the levels are none, error, warn, info, debug and trace".to_owned();
            (own("info"), Some(Ignored { variable: OTEL_LOG_LEVEL, value: name, problem }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(rust_log: &str, otel: &str) -> String {
        let environment = |name: &str| match name {
            RUST_LOG => Some(rust_log.to_owned()),
            OTEL_LOG_LEVEL => Some(otel.to_owned()),
            _ => None,
        };
        let (filter, ignored) = filter(&environment);
        let mut directives: Vec<String> = filter.to_string().split(',').map(str::to_owned).collect();
        directives.sort();
        let warning = ignored.map_or_else(String::new, |ignored| format!(" ({ignored})"));
        format!("RUST_LOG={rust_log} OTEL_LOG_LEVEL={otel} -> {}{warning}", directives.join(","))
    }

    #[test]
    fn colours_require_a_terminal_and_no_no_color() {
        let no_color = |value: &'static str| move |name: &str| (name == "NO_COLOR").then(|| value.to_owned());
        assert!(colours(true, &|_| None));
        assert!(colours(true, &no_color("")));
        assert!(!colours(true, &no_color("0")));
        assert!(!colours(false, &|_| None));
    }

    #[test]
    fn levels_come_from_the_environment() {
        let cases =
            [("", ""), ("", "debug"), ("", "WARN"), ("", "none"), ("", "loud"), ("h2=trace", "debug"), ("a=b=c", "")];
        insta::assert_snapshot!(cases.map(|(rust_log, otel)| chosen(rust_log, otel)).join("\n"), @r#"
        RUST_LOG= OTEL_LOG_LEVEL= -> undercurrent=info,warn
        RUST_LOG= OTEL_LOG_LEVEL=debug -> undercurrent=debug,warn
        RUST_LOG= OTEL_LOG_LEVEL=WARN -> undercurrent=warn,warn
        RUST_LOG= OTEL_LOG_LEVEL=none -> off
        RUST_LOG= OTEL_LOG_LEVEL=loud -> undercurrent=info,warn (OTEL_LOG_LEVEL=`loud` is ignored: the levels are none, error, warn, info, debug and trace)
        RUST_LOG=h2=trace OTEL_LOG_LEVEL=debug -> h2=trace
        RUST_LOG=a=b=c OTEL_LOG_LEVEL= -> undercurrent=info,warn (RUST_LOG=`a=b=c` is ignored: error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5; write a level, or target=level,target=level)
        "#);
    }
}
