//! The status of each signal on this host.

use super::{Caveat, Entry, HooksNeeded, LATENCY, REGISTRY, Settings, functions};
use crate::kernel::{
    Kernel,
    plan::{Outcome, SignalStatus, Status},
};

/// Returns the status of every signal, derived from the outcomes of its hooks.
#[must_use]
pub fn statuses(settings: &Settings, kernel: &Kernel) -> Vec<SignalStatus> {
    REGISTRY.iter().map(|entry| status(entry, settings, kernel)).collect()
}

fn status(entry: &Entry, settings: &Settings, kernel: &Kernel) -> SignalStatus {
    if !settings.enables(entry.name) {
        let by_level = "switched off by `level: normal` or by its own key";
        let reason = if entry.is_detail { by_level } else { "switched off by the configuration" };
        let reasons = vec![reason.to_owned()];
        return SignalStatus { signal: entry.name, status: Status::Unavailable, enabled: false, reasons };
    }
    let hooks: Vec<&str> = (entry.hooks)(settings).iter().map(|hook| hook.name).collect();
    let functions: Vec<&str> = functions(settings).filter(|_| entry.name == LATENCY.signal).collect();
    let concerns = |outcome: &&Outcome| hooks.iter().chain(&functions).any(|name| *name == outcome.hook);
    let served: Vec<_> = kernel.outcomes().iter().filter(concerns).collect();
    let mut reasons = hook_reasons(&served, &functions);
    let mut unseen = served.iter().map(|outcome| outcome.status == Status::Unavailable);
    let mut absent = match entry.hooks_needed {
        HooksNeeded::All => unseen.any(|unseen| unseen),
        HooksNeeded::Any => !served.is_empty() && unseen.all(|unseen| unseen),
        HooksNeeded::Each(needed) => needed.iter().any(|hook| hooks.contains(&hook.name) && !kernel.serves(hook)),
        HooksNeeded::None => false,
    };
    let mut idle = false;
    for caveat in (entry.caveats)(settings, kernel) {
        absent |= matches!(caveat, Caveat::Unavailable(_));
        idle |= matches!(caveat, Caveat::Idle(_));
        let (Caveat::Partial(reason) | Caveat::Unavailable(reason) | Caveat::Idle(reason)) = caveat;
        reasons.push(reason);
    }
    let status = match (absent, idle, reasons.is_empty()) {
        (true, _, _) => Status::Unavailable,
        (false, true, _) => Status::Idle,
        (false, false, true) => Status::Healthy,
        (false, false, false) => Status::Degraded,
    };
    SignalStatus { signal: entry.name, status, enabled: true, reasons }
}

/// Returns the reasons in the hooks: the names of those that measure less or nothing. The outcomes have the details. A user
/// who names a function needs the reason of the failure.
fn hook_reasons(served: &[&Outcome], functions: &[&str]) -> Vec<String> {
    let is_function = |outcome: &&&Outcome| functions.contains(&&*outcome.hook);
    let failed = |outcome: &&Outcome| {
        let reasons: Vec<&str> = outcome.refusals.iter().map(|refusal| refusal.what.as_str()).collect();
        format!("hook {} is unavailable ({})", outcome.hook, reasons.join("; "))
    };
    let with = |status: Status| {
        let hooks = served.iter().filter(move |outcome| outcome.status == status && !is_function(outcome));
        let names: Vec<&str> = hooks.map(|outcome| &*outcome.hook).collect();
        match names.as_slice() {
            [] => None,
            [hook] => Some(format!("hook {hook} is {}", status.as_str())),
            hooks => Some(format!("hooks {} are {}", hooks.join(", "), status.as_str())),
        }
    };
    let functions = served.iter().filter(is_function).filter(|outcome| outcome.status == Status::Unavailable);
    functions.map(failed).chain([Status::Unavailable, Status::Degraded].into_iter().filter_map(with)).collect()
}
