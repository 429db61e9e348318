//! What the programs cost, beside empty programs on the same hooks: sends traffic past both in rounds and prints the
//! kernel's own counts, one JSON object a round. `cargo xtask bench hooks` runs this, here and in virtual machines, and
//! makes figures of it.

mod baseline;
mod report;
mod wire;

use std::io::{self, Write as _};

use anyhow::Context as _;
use aya::sys::{Stats, enable_stats};
use clap::Parser;
use undercurrent::{
    config::{File, Flags, Settings},
    kernel::{Kernel, host::Host},
    sidecar::{self, Wanted},
};

use self::{
    baseline::Baseline,
    report::{Handlers, Order, Round},
    wire::{Traffic, Wire},
};

/// Runs programs under traffic and prints what the kernel counted.
#[derive(Parser)]
struct Arguments {
    /// Rounds of each kind of traffic, for each set of handlers and order of attachment
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Requests in a round, each with its reply
    #[arg(long, default_value_t = 200)]
    requests: u32,
    /// `cargo bench` says so
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // Counts go on while this is held, and no longer.
    let _counting =
        enable_stats(Stats::RunTime).context("the kernel does not count programs' runs for this process")?;
    let mut wire = Wire::open()?;
    for handlers in Handlers::ALL {
        for order in Order::ALL {
            measure(&arguments, &mut wire, handlers, order)?;
        }
    }
    Ok(())
}

fn measure(arguments: &Arguments, wire: &mut Wire, handlers: Handlers, order: Order) -> anyhow::Result<()> {
    let (kernel, baseline) = attach(handlers, order)?;
    // What runs first fills caches, and packets bear stamps only some milliseconds after somebody asked for them.
    exchange_all(wire, arguments.requests)?;
    let mut lines = Vec::new();
    for _ in 0..arguments.rounds {
        for traffic in Traffic::ALL {
            let before = report::counts(&kernel, &baseline);
            wire.exchange(traffic, arguments.requests)?;
            let programs = report::difference(before, report::counts(&kernel, &baseline));
            let messages = arguments.requests * 2;
            serde_json::to_writer(&mut lines, &Round { handlers, order, traffic, messages, programs })?;
            lines.push(b'\n');
        }
    }
    // Once all is measured: output is traffic for somebody too.
    io::stdout().write_all(&lines).context("cannot write")
}

fn exchange_all(wire: &mut Wire, requests: u32) -> anyhow::Result<()> {
    Traffic::ALL.into_iter().try_for_each(|traffic| wire.exchange(traffic, requests))
}

/// The product's programs and the empty ones. The kernel runs those first that were attached first.
fn attach(handlers: Handlers, order: Order) -> anyhow::Result<(Kernel, Baseline)> {
    let settings = settings(handlers);
    let (host, _) = sidecar::host()?;
    let wanted = Wanted::of(&settings, &host);
    let listen = |host: &Host| wanted.listen(host.clone());
    let baseline = |host: &Host| Baseline::attach(host, wanted.hooks());
    Ok(match order {
        Order::ProductFirst => {
            let kernel = listen(&host)?;
            (kernel, baseline(&host)?)
        }
        Order::EmptyFirst => {
            let baseline = baseline(&host)?;
            (listen(&host)?, baseline)
        }
    })
}

/// The defaults, with all or some of the signals.
fn settings(handlers: Handlers) -> Settings {
    let (mut settings, _) = Settings::resolve(Flags::default(), &|_| None, File::default());
    settings.signals.softirq_wait.enabled = handlers == Handlers::All;
    settings
}
