//! Logs on standard error, and on request to a collector. Standard output is reserved for outputs.

use std::io::{self, IsTerminal};

use tracing::Level;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, LevelFilter, filter_fn},
    layer::SubscriberExt as _,
    reload,
    util::SubscriberInitExt as _,
};

use crate::{
    environment::{Environment, Ignored, value},
    export::otlp::OwnLayer,
};

const RUST_LOG: &str = "RUST_LOG";
const OTEL_LOG_LEVEL: &str = "OTEL_LOG_LEVEL";
const NO_COLOR: &str = "NO_COLOR";
/// The variables that determine the log.
pub const VARIABLES: [&str; 3] = [RUST_LOG, OTEL_LOG_LEVEL, NO_COLOR];
/// Below this level, libraries log every frame and connection.
const LIBRARIES: &str = "warn";

/// The target of the sidecar's own events and spans.
const OWN: &str = env!("CARGO_CRATE_NAME");

/// The target of the states of single signals. Standard error has them at the level debug only, because one line counts them.
pub const STATES: &str = "undercurrent::states";

/// The log of this process.
pub struct Logging {
    layers: reload::Handle<Vec<OwnLayer>, Registry>,
    is_debug: bool,
}

impl Logging {
    /// Returns true if the log has the level debug, at which the sidecar has traces.
    #[must_use]
    pub fn is_debug(&self) -> bool {
        self.is_debug
    }

    /// Passes the sidecar's own events and spans to these layers too. Libraries stay on standard error: an exporter would
    /// otherwise export the events of its own connection.
    pub fn export(&self, layers: Vec<OwnLayer>) {
        if let Err(error) = self.layers.reload(layers) {
            tracing::warn!("cannot export the log: {error}");
        }
    }
}

/// Initializes logging for the process, and warns of an invalid level. Later calls have no effect.
pub fn start<W, F>(environment: Environment<'_>, writer: F) -> Logging
where
    W: io::Write,
    F: Fn() -> W + Send + Sync + 'static,
{
    let (logging, ignored) = install(environment, writer);
    if let Some(ignored) = ignored {
        tracing::warn!("{ignored}");
    }
    logging
}

/// Initializes logging for the process without a warning. Returns the variable with an invalid level.
pub fn install<W, F>(environment: Environment<'_>, writer: F) -> (Logging, Option<Ignored>)
where
    W: io::Write,
    F: Fn() -> W + Send + Sync + 'static,
{
    let (printed, ignored) = filter(environment, &format!(",{STATES}=warn"));
    let level = printed.max_level_hint().unwrap_or(LevelFilter::TRACE);
    let is_own = filter_fn(|event| event.target().starts_with(OWN));
    let (exported, layers) = reload::Layer::new(Vec::<OwnLayer>::new());
    let printer = tracing_subscriber::fmt::layer()
        .compact()
        .with_writer(writer)
        .with_ansi(colours(io::stderr().is_terminal(), environment));
    let subscriber = tracing_subscriber::registry()
        .with(exported.with_filter(is_own.and(filter(environment, "").0)))
        .with(printer.with_filter(printed));
    let is_first = subscriber.try_init().is_ok();
    (Logging { layers, is_debug: level >= Level::DEBUG }, ignored.filter(|_| is_first))
}

/// Any non-empty value of NO_COLOR disables colours (no-color.org).
fn colours(terminal: bool, environment: Environment<'_>) -> bool {
    terminal && environment(NO_COLOR).is_none_or(|value| value.is_empty())
}

/// Returns the log filter: `RUST_LOG` if set, else the sidecar's messages at `OTEL_LOG_LEVEL`, else at `info`. The directives of
/// `quiet` apply at the level `info`.
fn filter(environment: Environment<'_>, quiet: &str) -> (EnvFilter, Option<Ignored>) {
    let own = |level: &str| {
        let quiet = if level == "info" { quiet } else { "" };
        EnvFilter::new(format!("{LIBRARIES},{OWN}={level}{quiet}"))
    };
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
        let (filter, ignored) = filter(&environment, ",quiet=warn");
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
        RUST_LOG= OTEL_LOG_LEVEL= -> quiet=warn,undercurrent=info,warn
        RUST_LOG= OTEL_LOG_LEVEL=debug -> undercurrent=debug,warn
        RUST_LOG= OTEL_LOG_LEVEL=WARN -> undercurrent=warn,warn
        RUST_LOG= OTEL_LOG_LEVEL=none -> off
        RUST_LOG= OTEL_LOG_LEVEL=loud -> quiet=warn,undercurrent=info,warn (OTEL_LOG_LEVEL=`loud` is ignored: the levels are none, error, warn, info, debug and trace)
        RUST_LOG=h2=trace OTEL_LOG_LEVEL=debug -> h2=trace
        RUST_LOG=a=b=c OTEL_LOG_LEVEL= -> quiet=warn,undercurrent=info,warn (RUST_LOG=`a=b=c` is ignored: error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5; write a level, or target=level,target=level)
        "#);
    }
}
