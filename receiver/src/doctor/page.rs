//! Formats the report as text.

use bytesize::ByteSize;

use super::{Collector, HookReport, Report, Verdict};
use crate::{
    kernel::{host::Host, plan::Status, refusal::Refusal},
    parts::{Confinement, FileAccess},
    privileges::Task,
    workloads::Hierarchy,
};

/// The width of the page, which fits terminals, mails and issues.
const WIDTH: usize = 100;
/// The width of the labels.
const LABEL: usize = 12;
/// The width of a hook's name. The names of extra layers can be longer.
const HOOK: usize = 17;
/// The width of a signal's name, at least.
const SIGNAL: usize = 17;

/// Returns the page, with a newline at the end: the verdict, the remedies, the signals, the collectors, the hooks, the details,
/// and the refusals without a remedy. `verbose` adds the size of each map.
#[must_use]
pub fn page(report: &Report, verbose: bool) -> String {
    let mut page = wrapped(&format!("undercurrent {}: {}", report.version, verdict(report)), LABEL);
    page.push_str(&remedies(report));
    page.push_str(&signals(report));
    page.push_str(&collectors(&report.collectors));
    page.push_str(&hooks(&report.hooks));
    page.push('\n');
    page.push_str(&details(report, verbose));
    page.push_str(&incurable(&report.hooks));
    page
}

/// Formats the remedies on this machine, each with its reasons.
fn remedies(report: &Report) -> String {
    let mut text = String::new();
    let mut remedy = |remedy: &str, reasons: &[String]| {
        text.push('\n');
        text.push_str(&fact("what to do", remedy));
        text.extend(reasons.iter().map(|reason| fact("reason", reason)));
    };
    // The verdict names the capabilities without which the sidecar cannot run.
    if let Some(grant) = report.grant.as_ref().filter(|_| report.verdict != Verdict::Unusable) {
        remedy(grant, &[]);
    }
    if let Some(profile) = report.security_profile.as_ref().filter(|profile| profile.forbids_inspection) {
        remedy(
            UNCONFINE,
            &[format!("{} forbids to inspect other processes: {}", profile.name, Task::InspectProcesses.effect())],
        );
    }
    for (refusal, programs) in refusals(&report.hooks, true) {
        remedy(&refusal.cure, &[format!("{}: {}", programs.join(", "), refusal.what)]);
    }
    text
}

/// The remedy for a security module that confines the sidecar.
const UNCONFINE: &str = "run the sidecar without the profile (Kubernetes: `appArmorProfile: {type: Unconfined}` and \
                         `seLinuxOptions: {type: spc_t}`; Docker: `--security-opt apparmor=unconfined` and `--security-opt \
                         label=type:spc_t`)";

/// Formats the result of the trial delivery to each collector.
fn collectors(collectors: &[Collector]) -> String {
    let row = |collector: &Collector| {
        let Collector { items, endpoint, origin, problem } = collector;
        let origin = origin.as_ref().map_or_else(|| "by default".to_owned(), |origin| format!("from {origin}"));
        let result = problem.as_ref().map_or_else(|| "accepts".to_owned(), |problem| format!("fails, {problem}"));
        fact(items, &format!("{endpoint} ({origin}): {result}"))
    };
    if collectors.is_empty() {
        String::new()
    } else {
        String::from("\n") + &collectors.iter().map(row).collect::<String>()
    }
}

/// Formats the facts about the machine and about the parts of the sidecar.
fn details(report: &Report, verbose: bool) -> String {
    let mut text = report.host.as_ref().map_or_else(String::new, kernel);
    let lacks = if report.lacks.is_empty() {
        "all required".to_owned()
    } else {
        format!("lacking {}", report.lacks.join("; "))
    };
    text.push_str(&fact("privileges", &lacks));
    if let Some(profile) = &report.security_profile {
        let effect =
            if profile.forbids_inspection { "forbids to inspect other processes" } else { "no effect was found" };
        text.push_str(&fact("profile", &format!("{}: {effect}", profile.name)));
    }
    for part in &report.parts {
        text.push_str(&fact(part.part.as_str(), &confinement(part)));
    }
    if let Some(reason) = &report.no_probe {
        text.push_str(&fact("no probe", reason));
    }
    text.push_str(&memory(report, verbose));
    for field in &report.absent_fields {
        let cost = field
            .cost
            .map_or_else(|| "measurements that need it are refused or counted as lost".to_owned(), str::to_owned);
        text.push_str(&fact("field", &format!("{} is not in this kernel ({}): {cost}", field.field, field.reason)));
    }
    if let Some(source) = &report.cpu_time {
        text.push_str(&fact("CPU time", source));
    }
    text
}

fn fact(label: &str, text: &str) -> String {
    wrapped(&format!("{label:<LABEL$}{text}"), LABEL)
}

/// Wraps a text at the page's width and indents its continuation lines. Names are never broken.
fn wrapped(text: &str, indent: usize) -> String {
    let indent = " ".repeat(indent);
    let options = textwrap::Options::new(WIDTH)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options).lines().map(str::trim_end).fold(String::new(), |page, line| page + line + "\n")
}

fn verdict(report: &Report) -> String {
    match (report.verdict, &report.reason) {
        (Verdict::Healthy, _) => "everything works".to_owned(),
        (Verdict::Degraded, _) => "works with reduced measurements".to_owned(),
        (Verdict::Unusable, Some(reason)) => format!("cannot run: {reason}"),
        (Verdict::Unusable, None) => "cannot run".to_owned(),
    }
}

fn kernel(host: &Host) -> String {
    let btf = if host.btf { "with BTF" } else { "without BTF" };
    let root = host.cgroup_root.as_ref().map_or_else(String::new, |root| format!(" at {}", root.display()));
    let tree =
        host.hierarchy.as_ref().map(Hierarchy::mount_point).filter(|tree| Some(*tree) != host.cgroup_root.as_deref());
    let tree = tree.map_or_else(String::new, |tree| format!("; workloads at {}", tree.display()));
    fact("kernel", &format!("{} {btf}, {} CPUs", host.release, host.cpus))
        + &fact("lockdown", host.lockdown.as_deref().unwrap_or("not built in"))
        + &fact("cgroups", &format!("{}{root}{tree}", host.cgroup.as_str()))
        + &fact("clock", host.clocksource.as_deref().unwrap_or("unknown"))
}

fn confinement(part: &Confinement) -> String {
    let capabilities =
        if part.capabilities.is_empty() { "no capabilities".to_owned() } else { part.capabilities.join(" ") };
    let files = match part.files {
        FileAccess::Landlock => ", read-only files (Landlock)",
        FileAccess::UserOnly => "",
    };
    format!("uid {}, {capabilities}, filtered system calls (seccomp){files}", part.user)
}

fn memory(report: &Report, verbose: bool) -> String {
    let maps = &report.memory.maps;
    let (planned, limit) = (size(report.memory.planned as u64), size(report.memory.limit));
    let list = if verbose {
        maps.iter().map(|(map, bytes)| format!("{map} {}", size(*bytes as u64))).collect::<Vec<_>>().join(", ")
    } else {
        "`--verbose` lists them".to_owned()
    };
    fact("memory", &format!("{planned} of {limit} for {} maps: {list}", maps.len()))
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// Formats the hooks in columns.
fn hooks(hooks: &[HookReport]) -> String {
    if hooks.is_empty() {
        return String::new();
    }
    let probed = hooks.iter().any(|hook| hook.runs.is_some());
    let width = hooks.iter().map(|hook| hook.outcome.hook.len() + 2).max().map_or(HOOK, |longest| longest.max(HOOK));
    let row = |hook: &str, status: &str, by: &str, fired: &str, note: &str| {
        let fired = if probed { format!("{fired:<10}") } else { String::new() };
        let columns = format!("{hook:<width$}{status:<13}{by:<12}{fired}");
        wrapped(&format!("{columns}{note}"), columns.len())
    };
    let mut text = String::from("\n") + &row("HOOK", "STATUS", "BY", "FIRED", "");
    for hook in hooks {
        let outcome = &hook.outcome;
        let note =
            outcome.leaves_out.as_ref().map_or_else(String::new, |leaves_out| format!("does not see {leaves_out}"));
        text.push_str(&row(
            &outcome.hook,
            outcome.status.as_str(),
            outcome.by.as_deref().unwrap_or("-"),
            &fired(hook),
            &note,
        ));
    }
    text
}

/// Returns the refusals with or without a remedy on this machine, each once, with the programs that the kernel refused. A
/// healthy hook needs no remedy.
fn refusals(hooks: &[HookReport], curable: bool) -> Vec<(&Refusal, Vec<&str>)> {
    let mut reasons: Vec<(&Refusal, Vec<&str>)> = Vec::new();
    for hook in hooks {
        let needs_remedy = hook.outcome.status != Status::Healthy;
        for refusal in hook.outcome.refusals.iter().filter(|refusal| (refusal.is_curable && needs_remedy) == curable) {
            match reasons.iter_mut().find(|(known, _)| known.what == refusal.what && known.cure == refusal.cure) {
                Some((_, programs)) => programs.push(&refusal.program),
                None => reasons.push((refusal, vec![&refusal.program])),
            }
        }
    }
    reasons
}

/// Formats the refusals without a remedy on this machine.
fn incurable(hooks: &[HookReport]) -> String {
    let refusals = refusals(hooks, false);
    if refusals.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\nThese programs cannot run here. The table of hooks names the alternate of each, or says that its hook is unavailable.\n",
    );
    for (refusal, programs) in refusals {
        text.push_str(&fact("refused", &programs.join(", ")));
        text.push_str(&fact("", &format!("{}; remedy: {}", refusal.what, refusal.cure)));
    }
    text
}

fn fired(hook: &HookReport) -> String {
    let Some(runs) = &hook.runs else { return String::new() };
    let fired = runs.iter().filter(|(_, runs)| *runs > 0).count();
    match (fired, runs.len()) {
        (_, 0) => "-".to_owned(),
        (fired, all) if fired == all => "yes".to_owned(),
        (0, _) => "no".to_owned(),
        (fired, all) => format!("{fired} of {all}"),
    }
}

fn signals(report: &Report) -> String {
    if report.signals.is_empty() {
        return String::new();
    }
    let longest = report.signals.iter().map(|signal| signal.signal.len() + 2).max();
    let width = longest.map_or(SIGNAL, |longest| longest.max(SIGNAL));
    let mut text = format!("\n{:<width$}STATUS\n", "SIGNAL");
    for signal in &report.signals {
        let status = if signal.enabled { signal.status.as_str() } else { "off" };
        text.push_str(&wrapped(
            &format!("{:<width$}{status:<13}{}", signal.signal, signal.reasons.join("; ")),
            width + 13,
        ));
    }
    text
}

#[cfg(test)]
mod tests;
