//! The `undercurrent` command.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Context as _;
use undercurrent::{
    causes,
    cli::{
        self, Command, DoctorArguments, FlamegraphArguments, GraphArguments, SignalsArguments, WhyArguments, catalogue,
    },
    config::{ConfigError, Flags, Run, variables},
    descriptors, doctor,
    environment::{self, Ignored},
    exit,
    export::{
        otlp::{OwnTelemetry, RunningTelemetry},
        report::{NoWorkload, Report},
        terminal::Terminal,
    },
    flamegraph,
    graph::Graph,
    health::Health,
    listen::Endpoints,
    logging::{self, Logging},
    node::Node,
    options::{Interval, Output, Outputs, Span},
    outputs::{self, Opened},
    parts::{self, Access, Part, Program},
    requirements,
    sidecar::{self, Control, RunError, Sidecar},
    signals::{REGISTRY, internal},
    sysfs::Sysfs,
    telemetry::Resource,
    watchdog::Watchdog,
    workloads::{Directory, Runtimes},
};

/// The limit of the delivery of the last log records.
const LAST_LOGS: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    keep_memory_small();
    if let Some(succeeded) = parts::run(std::env::args_os()) {
        return ExitCode::from(if succeeded { 0 } else { exit::CANNOT_RUN });
    }
    let command = cli::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let ended = match command {
        Command::Run(run) => measure(run, None).map(|()| ExitCode::SUCCESS),
        Command::Doctor(arguments) => examine(&arguments),
        Command::Why(arguments) => explain(arguments).map(|()| ExitCode::SUCCESS),
        Command::Flamegraph(arguments) => draw(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Graph(arguments) => draw_graph(&arguments),
        Command::Signals(arguments) => {
            list(&arguments);
            Ok(ExitCode::SUCCESS)
        }
        Command::Print(text) => Ok(print(&text)),
        Command::ShowConfig(run) => run.shown(&environment::process).map(|text| print(&text)).map_err(Into::into),
        Command::CheckConfig(file) => check(&file),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("undercurrent: {}", descriptors::explained(&causes::chain(error.as_ref())));
        ExitCode::from(status(&error))
    })
}

/// Returns the exit status of an error.
fn status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(RunError::NothingDelivered { .. }) => exit::NOTHING_DELIVERED,
        _ if error.is::<NoWorkload>() => exit::NO_WORKLOAD,
        _ if error.is::<ConfigError>() || error.is::<outputs::OpenError>() => exit::INVALID,
        _ => exit::CANNOT_RUN,
    }
}

/// Fixes the size from which glibc allocates blocks with `mmap`. glibc raises this size after each free of a
/// larger block, unless a program sets it. The large buffers at start (mostly BTF) would then leave permanent
/// holes in the heap.
fn keep_memory_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes numbers only, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
}

/// Measures and exports. A report replaces the table.
fn measure(run: Run, report: Option<&Report>) -> anyhow::Result<()> {
    let (settings, ignored) = run.clone().settings(&environment::process)?;
    let terminal = Terminal::of_process();
    let log = terminal.clone();
    let log = logging::start(&environment::process, move || log.log());
    let node = Node::detect(&environment::process);
    let (resource, more) = Resource::node(&node, &settings.resource_attributes, &environment::process);
    warn(ignored.iter().chain(&more));
    if let Some(variable) = settings.disabled_by {
        tracing::info!("{variable} disables the sidecar: it measures nothing, and waits for a signal");
        let endpoints = Endpoints::open(&settings)?;
        return Ok(runtime()?.block_on(sidecar::idle(&settings, endpoints))?);
    }
    // Fails for invalid settings before it truncates an output file or attaches a program.
    let outputs =
        outputs::Plan::new(&settings, &environment::process)?.reporting(report).showing(run.selection.clone());
    for destination in outputs.destinations(settings.otlp.endpoint.as_deref()) {
        tracing::info!("{destination}");
    }
    for warning in outputs.exposed() {
        tracing::warn!("{warning}");
    }
    let reach = outputs.reach(&terminal, &environment::process);
    descriptors::raise();
    let (host, requirements) = requirements::permitted(&settings)?;
    let places = outputs.places().into_iter().chain(run.config.clone()).collect();
    let requirements = requirements.readable(places);
    let access =
        Access::gain(&Program::own().context("cannot open the program of this process")?, host, &requirements)?;
    let endpoints = if report.is_none() { Endpoints::open(&settings)? } else { Endpoints::default() };
    let (control, runtime) = (Control::new().context("cannot start tokio")?, runtime()?);
    let Opened { outputs, own, collectors, newest } = {
        let _entered = control.enter();
        outputs.through(access.reader.foreign()).open(&terminal, log.is_debug(), reach.ports.clone())?
    };
    let entered = runtime.enter();
    let directory =
        Directory::start(&settings.workloads, &node, &environment::process, Runtimes::through(access.reader.foreign()));
    // At this point no thread runs, and the process has received no data from outside.
    Part::Worker.confine(&reach)?;
    drop(entered);
    let watchdog = Watchdog::new(settings.interval.get());
    {
        let _entered = control.enter();
        let health = Health::new(watchdog.clone(), outputs.statistics());
        endpoints.serve(health, newest).context("cannot answer requests")?;
    }
    let mut control = control.start(&settings, watchdog.clone())?;
    let own = own.and_then(|own| export_log(own, &log, &resource));
    let ended = runtime.block_on(async {
        let sidecar = Sidecar::start(&settings, resource, access, &requirements, directory, watchdog)?;
        sidecar.run(settings, run, outputs, collectors, &mut control).await?;
        anyhow::Ok(())
    });
    // The control thread runs the connections of the log's exporter, and ends after it.
    if let Some(own) = own {
        own.end(LAST_LOGS);
    }
    drop(control);
    // The thread of the screen may be blocked by a terminal without a reader.
    terminal.restore();
    ended
}

/// Starts the export of the sidecar's own log. Without a thread for it, the log stays on standard error.
fn export_log(own: OwnTelemetry, log: &Logging, resource: &Resource) -> Option<RunningTelemetry> {
    match own.start(&resource.to_sdk()) {
        Ok((layers, running)) => {
            log.export(layers);
            Some(running)
        }
        Err(error) => {
            tracing::warn!("cannot start the delivery of logs: {error}; they are on standard error only");
            None
        }
    }
}

/// Logs the environment variables that are ignored.
fn warn<'a>(invalid: impl Iterator<Item = &'a Ignored>) {
    for ignored in invalid.map(ToString::to_string).chain(variables::ignored(&environment::process)) {
        tracing::warn!("{ignored}");
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")
}

fn examine(arguments: &DoctorArguments) -> anyhow::Result<ExitCode> {
    logging::start(&environment::process, std::io::stderr);
    let flags = Flags {
        sysfs_root: arguments.sysfs_root.clone(),
        level: arguments.level,
        avoid: arguments.avoid.clone(),
        ..Flags::default()
    };
    let run = Run { config: arguments.config.clone(), flags, ..Run::default() };
    let (settings, ignored) = run.settings(&environment::process)?;
    warn(ignored.iter());
    if arguments.energy {
        let sysfs = Sysfs::new(settings.sysfs_root.clone());
        print!("{}", doctor::check_energy(&settings.signals.energy, sysfs)?);
        return Ok(ExitCode::SUCCESS);
    }
    let outputs = outputs::Plan::new(&settings, &environment::process)?;
    let report = doctor::examine(&settings, &outputs.collectors(), arguments.probe);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?);
    } else {
        print!("{}", doctor::page(&report, arguments.verbose));
    }
    Ok(ExitCode::from(report.verdict.exit_status(arguments.fail_on)))
}

/// Measures for some seconds, and prints the likely cause of a workload's latency.
fn explain(arguments: WhyArguments) -> anyhow::Result<()> {
    let WhyArguments { workload, seconds, config, level } = arguments;
    let report = Report::default();
    let flags = Flags {
        interval: Some(Interval::DEFAULT_TABLE),
        duration: Some(Span::new(Duration::from_secs(seconds.into()))),
        outputs: Some(Outputs::only(Output::Table)),
        level,
        ..Flags::default()
    };
    measure(Run { config, flags, ..Run::default() }, Some(&report))?;
    print!("{}", report.text(&workload)?);
    Ok(())
}

fn draw(arguments: &FlamegraphArguments) -> anyhow::Result<()> {
    logging::start(&environment::process, std::io::stderr);
    let run = Run { config: arguments.config.clone(), ..Run::default() };
    let (settings, _) = run.settings(&environment::process)?;
    let lasting = Duration::from_secs(arguments.seconds.into());
    let recording = flamegraph::record(settings, lasting, &arguments.output)?;
    let (picture, folded) = (arguments.output.display(), recording.folded.display());
    eprintln!("{} samples of network work, {} lost: {picture}, {folded}", recording.samples, recording.lost);
    Ok(())
}

fn draw_graph(arguments: &GraphArguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let graph = runtime.block_on(Graph::read(&arguments.prometheus, arguments.window.get()))?;
    if graph.edges.is_empty() {
        eprintln!("Prometheus has no calls in this period: `signals.tcp_peers.enabled: true` measures them");
    }
    Ok(print(&graph.draw(arguments.format, arguments.critical)))
}

fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

/// Checks a configuration file, without the environment of this process.
fn check(file: &Path) -> anyhow::Result<ExitCode> {
    let run = Run { config: Some(file.to_owned()), ..Run::default() };
    let (settings, _) = run.settings(&|_| None)?;
    outputs::Plan::new(&settings, &|_| None)?;
    println!("{} is valid", file.display());
    Ok(ExitCode::SUCCESS)
}

fn list(arguments: &SignalsArguments) {
    let own = catalogue::Entry { name: internal::NAME, description: internal::SUMMARY, metrics: &internal::METRICS };
    let entry = |entry: &&'static undercurrent::signals::Entry| catalogue::Entry {
        name: entry.name,
        description: entry.summary,
        metrics: entry.metrics,
    };
    let entries: Vec<_> = REGISTRY.iter().map(entry).chain([own]).collect();
    print!("{}", if arguments.json { catalogue::json(&entries) } else { catalogue::table(&entries) });
}
