//! `cargo xtask bench hooks`: builds `receiver/benches/hooks`, runs it on this kernel or in an instruction-counting guest, and reports
//! the cost of each program relative to an empty program.

mod report;
pub mod round;

use std::process::Command;

use anyhow::bail;
use xtask_common::{artifacts, machine};

use self::{report::Stopwatch, round::Round};
use super::{
    build::{self, Profile},
    host::description,
};

/// Options of `cargo xtask bench hooks`.
#[derive(clap::Args)]
pub struct Options {
    /// Run in a guest whose clock counts instructions: exact, and the only way to see fentry where the host refuses it
    #[arg(long)]
    icount: bool,
    /// The guest's kernel
    #[arg(long, requires = "icount", default_value = KERNEL)]
    kernel: String,
    /// fentry, kprobe, tracepoint or cgroup hooks to do without; repeatable
    #[arg(long, value_name = "MEANS")]
    avoid: Vec<String>,
    /// Rounds of each kind of traffic, for each set of handlers and order of attachment [default: 100; 5 in the guest]
    #[arg(long)]
    rounds: Option<u32>,
    /// Requests in a round, each with its reply [default: 200; 50 in the guest]
    #[arg(long)]
    requests: Option<u32>,
}

/// The default kernel of the guest.
const KERNEL: &str = "6.12";

impl Options {
    /// Default options, natively or in the guest.
    pub fn usual(icount: bool) -> Self {
        Self { icount, kernel: KERNEL.to_owned(), avoid: Vec::new(), rounds: None, requests: None }
    }
}

/// Sets of handlers: the sidecar's programs paired with empty programs, for the node and, natively, by workload and with sampling.
const HANDLERS: [&str; 8] = [
    "all",
    "without_waits",
    "without_slow_packets",
    "by_workload_without_waits",
    "by_workload",
    "by_workload_by_cpu",
    "sampled",
    "sampled_by_workload",
];

/// The set of handlers of CPU time by workload, with socket calls.
const CPU_TIME: &str = "cpu_time";
/// The sets of handlers of counters of the processor and of energy: with all counters, and with cycles as the only counter.
const ENERGY: [&str; 2] = ["energy", "energy_by_cycles"];

/// The measured sets of handlers and the number of repetitions.
pub struct Sampling<'a> {
    /// Names of sets of handlers in the benchmark.
    pub handlers: &'a [&'a str],
    /// Number of rounds for each kind of traffic, set of handlers and order of attachment.
    pub rounds: u32,
    /// Number of requests in a round.
    pub requests: u32,
}

impl Sampling<'_> {
    /// Returns enough rounds for a shared machine.
    pub const fn natively<'a>(handlers: &'a [&'a str]) -> Sampling<'a> {
        Sampling { handlers, rounds: 100, requests: 200 }
    }

    /// Runs the benchmark and parses its output.
    pub fn run(&self, command: &mut Command) -> anyhow::Result<Vec<Round>> {
        command.arg("--rounds").arg(self.rounds.to_string()).arg("--requests").arg(self.requests.to_string());
        for handlers in self.handlers {
            command.args(["--handlers", handlers]);
        }
        round::parse(&machine::output(command)?)
    }
}

/// Builds the benchmark, unoptimized: the measured programs run in the kernel.
pub fn benchmark() -> anyhow::Result<Command> {
    Ok(Command::new(build::benchmark("hooks", Profile::Dev)?))
}

/// Measures the programs of CPU time by workload in a guest that counts instructions, and prints a table.
pub fn of_cpu_time(kernel: Option<&str>) -> anyhow::Result<()> {
    let kernel = kernel.unwrap_or(KERNEL);
    let mut command = guest(&benchmark()?, kernel)?;
    let rounds = Sampling { handlers: &[CPU_TIME], rounds: 5, requests: 50 }.run(&mut command)?;
    println!("{}, guest with Linux {kernel}", description());
    print!("{}", report::table(&rounds, CPU_TIME, "instructions"));
    let mut command = guest(&benchmark()?, kernel)?;
    command.args(["--callchains", "--rounds", "5", "--requests", "2000"]);
    println!("\nin instructions:\n{}", machine::output(&mut command)?);
    println!("Netto (thesis, 2023) takes 260 to 270 instructions at each hook, and 384 at a switch between tasks");
    Ok(())
}

/// Measures the programs of counters and energy natively, and with `icount` in a guest that counts instructions, and prints tables.
/// Returns the native cost of a switch to or from the idle task above an empty program, in nanoseconds.
pub fn of_energy(icount: bool) -> anyhow::Result<Option<f64>> {
    let native = Sampling { handlers: &ENERGY, rounds: 40, requests: 200 }.run(&mut benchmark()?)?;
    let print = |rounds: &[Round], unit| {
        ENERGY.iter().for_each(|handlers| print!("\n{handlers}: {}", report::table(rounds, handlers, unit)));
    };
    print(&native, "ns");
    if icount {
        let mut guest = guest(&benchmark()?, KERNEL)?;
        print(&Sampling { handlers: &ENERGY, rounds: 5, requests: 50 }.run(&mut guest)?, "instructions");
    }
    let pauses = |round: &Round| round.handlers == ENERGY[0] && round.traffic == "pauses";
    Ok(round::cost(&native, "sched_switch", pauses).map(|cost| cost.net.value))
}

/// Returns a command that runs a benchmark in a guest whose clock counts instructions.
fn guest(benchmark: &Command, kernel: &str) -> anyhow::Result<Command> {
    let mut guest = Command::new(artifacts::member("xtask-vm")?);
    guest.args(["vm", "--icount", "--timeout", "600", "--kernel", kernel, "--"]);
    guest.arg(benchmark.get_program());
    Ok(guest)
}

/// Builds and runs the benchmark, and prints a report.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !machine::is_root() {
        bail!(
            "this loads programs into the kernel: run it as root (sudo -E env PATH=\"$PATH\" cargo xtask bench hooks)"
        );
    }
    let benchmark = benchmark()?;
    let mut command = if options.icount { guest(&benchmark, &options.kernel)? } else { benchmark };
    command.args(options.avoid.iter().flat_map(|means| ["--avoid", means]));
    let natively = Sampling::natively(&HANDLERS);
    let in_guest = Sampling { handlers: &HANDLERS[..3], rounds: 5, requests: 50 };
    let usual = if options.icount { in_guest } else { natively };
    let sampling = Sampling {
        rounds: options.rounds.unwrap_or(usual.rounds),
        requests: options.requests.unwrap_or(usual.requests),
        ..usual
    };
    println!("{}", description());
    let rounds = sampling.run(&mut command)?;
    let stopwatch =
        if options.icount { Stopwatch::Instructions(options.kernel.clone()) } else { Stopwatch::Nanoseconds };
    print!("{}", report::render(&rounds, &stopwatch));
    Ok(())
}
