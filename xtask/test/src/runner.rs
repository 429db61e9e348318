//! `cargo xtask test`: checks and tests in two tiers, a table of their outcomes, and a last line that counts them.

use std::{
    iter,
    num::NonZeroUsize,
    panic::resume_unwind,
    process,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use clap::builder::PossibleValuesParser;
use xtask_common::{machine, tally::Tally};

use crate::{
    parts::{PARTS, Part, Tier},
    record,
    report::{self, Section},
};

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Options {
    /// Run everything: all kernels with every set of hooks, container engines, NICs; writes docs/matrix.md and docs/truth.md
    #[arg(long)]
    matrix: bool,
    /// Run only this part, of either tier (repeatable)
    #[arg(long, value_name = "PART", value_parser = PossibleValuesParser::new(PARTS.iter().map(|part| part.name)))]
    only: Vec<String>,
    /// List the parts of this tier
    #[arg(long)]
    list: bool,
}

impl Options {
    fn includes(&self, part: &Part) -> bool {
        if self.only.is_empty() {
            self.matrix || part.tier == Tier::Quick
        } else {
            self.only.iter().any(|name| name == part.name)
        }
    }
}

/// Runs the selected parts. Exits with status 1 if a test failed or none passed.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let selected = PARTS.iter().filter(|part| options.includes(part));
    if options.list {
        selected.for_each(|part| println!("{:<18} {}", part.name, part.about));
        if !options.matrix {
            println!("\n`--matrix --list` lists all parts.");
        }
        return Ok(());
    }
    let (parts, left_out): (Vec<_>, Vec<_>) = selected.partition(|part| !part.root || machine::is_root());
    if !left_out.is_empty() {
        println!("not root, so these parts do not run (sudo -E env PATH=\"$PATH\" cargo xtask test runs them):");
        left_out.iter().for_each(|part| println!("  {:<18} {}", part.name, part.about));
    }
    let is_complete = options.matrix && options.only.is_empty() && left_out.is_empty();
    let state = is_complete.then(record::State::now).transpose()?;
    let mut sections: Vec<_> = parts.chunk_by(|one, next| one.waits && next.waits).flat_map(side_by_side).collect();
    sections.extend(left_out.into_iter().map(|part| Section::left_out(part.name)));
    if let Some(state) = state {
        record::write(&state, &sections)?;
    }
    print!("{}", report::render(&sections));
    let Tally { passed, failed, .. } = report::total(&sections);
    if failed > 0 || passed == 0 {
        process::exit(1);
    }
    Ok(())
}

/// Runs parts that do not disturb each other, one on each CPU. With more of them, tests on an emulated CPU exceed their time limits.
fn side_by_side(parts: &[&Part]) -> Vec<Section> {
    let most = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let waiting = Mutex::new(parts.iter().enumerate());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || iter::from_fn(&next).map(|(index, part)| (index, section(part))).collect::<Vec<_>>();
    let mut sections: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..most.min(parts.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    sections.sort_by_key(|(index, _)| *index);
    sections.into_iter().map(|(_, section)| section).collect()
}

fn section(part: &Part) -> Section {
    println!("== {}: {}", part.name, part.about);
    let start = Instant::now();
    let tally = (part.run)().and_then(Tally::verified).unwrap_or_else(|error| {
        println!("{error:#}");
        Tally::failed(1)
    });
    let section = Section { name: part.name, tally, took: start.elapsed() };
    println!("   {section}");
    section
}
