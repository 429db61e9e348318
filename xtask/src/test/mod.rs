//! `cargo xtask test`: every check and test, in one table, with one line at the end that counts them.

mod cargo;
mod guest;
mod report;
mod tally;

use std::{
    iter,
    num::NonZeroUsize,
    panic::resume_unwind,
    process::{self, Command},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context as _, bail};
use clap::builder::PossibleValuesParser;

use self::report::Section;
pub use self::tally::Tally;
use crate::{build_ebpf, e2e, lint, machine};

/// A part of the test run.
struct Step {
    /// Its name, for `--only`.
    name: &'static str,
    /// What it shows, for a reader.
    about: &'static str,
    /// Whether only root can run it: it loads programs, makes network namespaces, or installs what it needs.
    root: bool,
    /// Whether it is virtual machines that wait more than they work, so that others may run beside it.
    guest: bool,
    /// Runs it. An error is a failure like a test's.
    run: fn() -> anyhow::Result<Tally>,
}

/// The parts, in their order: what is quick and what others build on comes first.
const STEPS: &[Step] = &[
    Step {
        name: "ebpf",
        about: "the committed kernel object is what its sources give",
        root: false,
        guest: false,
        run: build_ebpf::step,
    },
    Step { name: "format", about: "Rust files are formatted", root: false, guest: false, run: lint::rust_format },
    Step { name: "toml", about: "TOML files are formatted", root: false, guest: false, run: lint::toml_format },
    Step { name: "clippy", about: "clippy has nothing to say", root: false, guest: false, run: lint::clippy },
    Step {
        name: "deny",
        about: "dependencies are as deny.toml allows",
        root: false,
        guest: false,
        run: lint::dependencies,
    },
    Step { name: "unit", about: "unit and documentation tests", root: false, guest: false, run: cargo::unit },
    Step {
        name: "native",
        about: "integration tests on this machine's kernel",
        root: true,
        guest: false,
        run: cargo::native,
    },
    Step {
        name: "vm",
        about: "virtual machines run this machine's programs under another kernel",
        root: true,
        guest: false,
        run: cargo::virtual_machines,
    },
    // The longest first, so that none is left over when the others are done.
    Step {
        name: "vm-6.12",
        about: "the sidecar's integration tests under Linux 6.12",
        root: true,
        guest: true,
        run: guest::linux_6_12,
    },
    Step {
        name: "vm-6.1",
        about: "what differs by kernel under Linux 6.1, latency by every set of hooks",
        root: true,
        guest: true,
        run: guest::linux_6_1,
    },
    Step {
        name: "vm-7",
        about: "latency under the newest Linux 7 by every set of hooks",
        root: true,
        guest: true,
        run: guest::linux_7,
    },
    Step {
        name: "vm-6.12-alternates",
        about: "latency under Linux 6.12 without trampolines, and without kprobes",
        root: true,
        guest: true,
        run: guest::linux_6_12_by_alternates,
    },
    Step {
        name: "vm-5.10",
        about: "latency under Linux 5.10 by every set of hooks",
        root: true,
        guest: true,
        run: guest::linux_5_10,
    },
    Step {
        name: "vm-cards",
        about: "a network card that stamps packets, under a general Linux 6.12",
        root: true,
        guest: true,
        run: guest::cards,
    },
    Step {
        name: "vm-icount",
        about: "softirq time against ftrace's where the clock counts instructions",
        root: true,
        guest: false,
        run: guest::instructions,
    },
    Step {
        name: "e2e",
        about: "a real collector takes the sidecar's metrics, on loopback, in the compose example and of containers",
        root: true,
        guest: false,
        run: end_to_end,
    },
];

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Options {
    /// Run only this part; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(STEPS.iter().map(|step| step.name)))]
    only: Vec<String>,
    /// List the parts
    #[arg(long)]
    list: bool,
}

/// Runs the parts and ends the process with their verdict.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.list {
        STEPS.iter().for_each(|step| println!("{:<18} {}", step.name, step.about));
        return Ok(());
    }
    let chosen = |step: &&Step| options.only.is_empty() || options.only.iter().any(|name| name == step.name);
    let (steps, left_out): (Vec<_>, Vec<_>) =
        STEPS.iter().filter(chosen).partition(|step| !step.root || machine::is_root());
    if !left_out.is_empty() {
        println!("not root, so these parts are left out (sudo -E env PATH=\"$PATH\" cargo xtask test runs them):");
        left_out.iter().for_each(|step| println!("  {:<18} {}", step.name, step.about));
    }
    let mut sections: Vec<_> = steps.chunk_by(|one, next| one.guest && next.guest).flat_map(side_by_side).collect();
    sections.extend(left_out.into_iter().map(|step| Section::left_out(step.name)));
    print!("{}", report::render(&sections));
    if sections.iter().any(|section| section.tally.failed > 0)
        || sections.iter().all(|section| section.tally.passed == 0)
    {
        process::exit(1);
    }
    Ok(())
}

/// Runs parts that do not disturb each other, half as many again at once as there are CPUs: each waits a third of its time.
fn side_by_side(steps: &[&Step]) -> Vec<Section> {
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let most = cpus + cpus / 2;
    let waiting = Mutex::new(steps.iter().enumerate());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || iter::from_fn(&next).map(|(place, step)| (place, section(step))).collect::<Vec<_>>();
    let mut sections: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..most.min(steps.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    sections.sort_by_key(|(place, _)| *place);
    sections.into_iter().map(|(_, section)| section).collect()
}

fn section(step: &Step) -> Section {
    println!("== {}: {}", step.name, step.about);
    let start = Instant::now();
    let tally = (step.run)().and_then(Tally::verified).unwrap_or_else(|error| {
        println!("{error:#}");
        Tally::failed(1)
    });
    let section = Section { name: step.name, tally, took: start.elapsed() };
    println!("   {section}");
    section
}

/// Runs the sidecar with the programs that it works with.
fn end_to_end() -> anyhow::Result<Tally> {
    let sidecar = cargo::sidecar()?;
    let mut tally = Tally::default();
    for scenario in [e2e::collector::run, e2e::compose::run] {
        match scenario(&sidecar) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                println!("{error:#}");
                tally.failed += 1;
            }
        }
    }
    Ok(tally.and(e2e::workloads::run(&sidecar, &e2e::workloads::Options::default())?))
}

/// Runs a check that passes or fails as a whole; only a failure shows what it printed.
pub fn checked(command: &mut Command, remedy: &str) -> anyhow::Result<Tally> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{command:?} failed: {remedy}");
    }
    Ok(Tally::passed(1))
}
