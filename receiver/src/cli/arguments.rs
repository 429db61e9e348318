//! Command-line arguments. Doc comments in this file are the help texts.

use std::path::PathBuf;

use clap::{Args, Parser, builder::PossibleValuesParser};
use clap_complete::Shell;

use crate::{
    doctor::FailOn,
    graph::{Endpoint, Format, Percentile},
    options::{AttachKind, Interval, Level, ListenAddress, Output, Sampling, Span},
    signals::REGISTRY,
};

const AFTER_HELP: &str = "\
Flags take precedence over environment variables, which take precedence over the configuration file.

Environment:
  OTEL_EXPORTER_OTLP_ENDPOINT     endpoint of the collector; makes otlp the default output
  OTEL_EXPORTER_OTLP_*            the other settings of OTLP
  OTEL_METRICS_EXPORTER           otlp, console, otlp/stdout or none
  OTEL_TRACES_EXPORTER            otlp, or none: no spans of slow packets
  OTEL_METRIC_EXPORT_INTERVAL     interval in milliseconds
  OTEL_SDK_DISABLED               true: measure nothing
  OTEL_RESOURCE_ATTRIBUTES        more attributes of this node, as key=value,key=value
  OTEL_SERVICE_NAME               service name [default: undercurrent]
  K8S_NODE_NAME, NODE_NAME        name of the Kubernetes node
  RUST_LOG, OTEL_LOG_LEVEL        log level: error, warn, info, debug, trace; logs go to standard error
  NO_COLOR                        disables colours

Exit status:
  0  stopped by SIGINT, SIGTERM or --duration, or all readers of standard output are gone
  1  no snapshot was delivered to any output
  2  the command line, the configuration or an output is invalid
  3  the sidecar cannot run on this machine, or a part of it failed";

const DOCTOR_STATUS: &str = "\
Exit status:
  0  every signal is healthy or idle; with `--fail-on unusable`, the sidecar can run
  1  a signal is degraded or unavailable
  2  the command line or the configuration is invalid
  3  the sidecar cannot run on this machine";

const WHY_STATUS: &str = "\
Exit status:
  0  the report was printed, whatever the cause
  1  no workload with network traffic has this name, or several have
  2  the command line or the configuration is invalid
  3  the sidecar cannot run on this machine, or a part of it failed";

/// Measures the cost of the kernel's network stack and exports it as OpenTelemetry.
#[derive(Parser)]
#[command(
    name = "undercurrent",
    bin_name = "undercurrent",
    version,
    after_help = AFTER_HELP
)]
pub struct Arguments {
    #[command(flatten)]
    pub run: RunArguments,
    #[command(subcommand)]
    pub subcommand: Option<Subcommand>,
}

#[derive(clap::Subcommand)]
pub enum Subcommand {
    /// Measures and exports until a signal ends the process (the default).
    #[command(after_help = AFTER_HELP)]
    Run(RunArguments),
    /// Checks which signals this machine supports, and prints how to fix problems.
    #[command(after_help = DOCTOR_STATUS)]
    Doctor(DoctorArguments),
    /// Measures for some seconds, and names the likely cause of a workload's latency with the figures behind it.
    ///
    /// Starts a measurement like `run`, and needs the privileges of `run`. docs/causes.md has the rules.
    #[command(after_help = WHY_STATUS)]
    Why(WhyArguments),
    /// Samples the CPUs for some seconds, and draws the functions of the network stack.
    ///
    /// Needs root. Also writes the folded stacks, to a file with the extension `folded`.
    Flamegraph(FlamegraphArguments),
    /// Draws the calls between services, from the metrics of `tcp_peers` in Prometheus.
    ///
    /// Needs no privileges. The slowest path is red.
    Graph(GraphArguments),
    /// Prints all signals with their metrics.
    Signals(SignalsArguments),
    /// Prints or checks the configuration.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Prints a script with completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints the manual page, for man(1).
    Man,
}

#[derive(Args)]
pub struct RunArguments {
    /// Configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Time between snapshots, for example 500ms [default: 10s; 1s if only table is enabled].
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub interval: Option<Interval>,
    /// Stops after this time [default: never].
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub duration: Option<Span>,
    /// Outputs: table, json, json=FILE or otlp; repeatable [default: otlp if an endpoint is set; none with --listen; else table].
    #[arg(long, value_name = "OUTPUT")]
    pub output: Vec<Output>,
    /// Serves a page, /metrics for Prometheus and /v1/snapshot, for example at 127.0.0.1:9464 [default: no address].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<ListenAddress>,
    /// Amount of detail: normal or detailed [default: normal].
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub level: Option<Level>,
    /// Share of measured packets: adaptive, all, 1/2, 1/4, ... [default: adaptive].
    #[arg(long, value_name = "SHARE")]
    pub sampling: Option<Sampling>,
    /// Never attaches by fentry, kprobe, tracepoint, cgroup or perf_event; repeatable [default: none].
    #[arg(long, value_name = "KIND", value_enum, hide_possible_values = true)]
    pub avoid: Vec<AttachKind>,
    /// Folder where sysfs is mounted, for power meters [default: /sys].
    #[arg(long, value_name = "DIR")]
    pub sysfs_root: Option<PathBuf>,
    /// Shows only workloads with this text in their name in the table [default: all].
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// Shows only this signal in the table; repeatable [default: all].
    #[arg(long, value_name = "SIGNAL", value_parser = PossibleValuesParser::new(REGISTRY.iter().map(|entry| entry.name)), hide_possible_values = true)]
    pub signal: Vec<String>,
    /// Sorts the rows of the table by the column with this heading [default: the first number; wait on a terminal].
    #[arg(long, value_name = "HEADING")]
    pub sort: Option<String>,
}

/// Arguments of `doctor`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DoctorArguments {
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
    /// Sends traffic over loopback and checks that every hook fires; requires CAP_SYS_ADMIN.
    #[arg(long)]
    pub probe: bool,
    /// Configuration file (YAML) with the signals and limits to check.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Amount of detail to check: normal or detailed [default: normal].
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub level: Option<Level>,
    /// Prints the size of each kernel map.
    #[arg(long)]
    pub verbose: bool,
    /// Never attaches by fentry, kprobe, tracepoint, cgroup or perf_event; repeatable [default: none].
    #[arg(long, value_name = "KIND", value_enum, hide_possible_values = true)]
    pub avoid: Vec<AttachKind>,
    /// Folder where sysfs is mounted, for power meters [default: /sys].
    #[arg(long, value_name = "DIR")]
    pub sysfs_root: Option<PathBuf>,
    /// Runs two known loads for 20 seconds, alone and together, and prints the power that each was charged.
    #[arg(long, conflicts_with_all = ["json", "probe", "verbose"])]
    pub energy: bool,
    /// Lowest verdict with a non-zero exit status: degraded or unusable.
    #[arg(long, value_name = "VERDICT", value_enum, default_value_t, hide_possible_values = true)]
    pub fail_on: FailOn,
}

/// Arguments of `why`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct WhyArguments {
    /// Name of the workload as the table shows it, or a part that only this name contains.
    #[arg(long, value_name = "NAME")]
    pub workload: String,
    /// Duration of the measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=3600))]
    pub seconds: u32,
    /// Configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Amount of detail: normal or detailed [default: normal].
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub level: Option<Level>,
}

/// Arguments of `flamegraph`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct FlamegraphArguments {
    /// Duration of the recording.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// File for the picture (SVG).
    #[arg(long, short, value_name = "FILE", default_value = "flamegraph.svg")]
    pub output: PathBuf,
    /// Configuration file (YAML) with kinds of attachment to avoid.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Arguments of `graph`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct GraphArguments {
    /// Address of Prometheus: http://HOST:PORT, optionally with a path.
    #[arg(long, value_name = "URL", default_value = "http://localhost:9090")]
    pub prometheus: Endpoint,
    /// Period before now.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub window: Span,
    /// Format: dot (Graphviz) or svg.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true)]
    pub format: Format,
    /// Percentile of the critical path: p50 or p99.
    #[arg(long, value_name = "PERCENTILE", value_enum, default_value_t, hide_possible_values = true)]
    pub critical: Percentile,
}

/// Arguments of `signals`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SignalsArguments {
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Subcommands of `config`.
#[derive(clap::Subcommand)]
pub enum ConfigCommand {
    /// Prints a configuration file with all settings and their defaults in comments.
    Example,
    /// Prints the JSON schema of the configuration file, for editors.
    Schema,
    /// Checks a configuration file; needs no privileges.
    Check {
        /// Configuration file (YAML).
        file: PathBuf,
    },
    /// Prints the effective settings, each with its origin: a flag, a variable, the file or the default.
    ///
    /// Takes the options of `run`. Values of headers are left out, because they may be secrets.
    Show(Box<RunArguments>),
}
