//! The likely cause of a workload's latency, by rules with thresholds. docs/causes.md is generated from them.

use std::fmt;

use super::figure::{Figure, Figures};

/// A likely cause of latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A CPU quota holds the workload.
    Quota,
    /// The hypervisor stops the CPUs.
    Steal,
    /// The reader is ready and waits for a CPU.
    NoCpu,
    /// The reader does other work or sleeps between its reads.
    Reader,
    /// The softirqs of the host run late.
    Softirqs,
    /// The host drops packets.
    Drops,
    /// The network or the other end is slow, or loses packets.
    Network,
    /// No rule applies.
    None,
}

/// A rule: the cause applies if all conditions hold.
#[derive(Debug)]
pub struct Rule {
    /// The cause.
    pub cause: Cause,
    /// The conditions.
    pub conditions: &'static [Condition],
}

/// A condition of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// The figure.
    pub figure: Figure,
    /// The bound of its value.
    pub bound: Bound,
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// The value is at least this threshold.
    AtLeast(f64),
    /// The value is below this threshold.
    Below(f64),
    /// The value is not below another figure, if that was measured.
    NotBelow(Figure),
}

const LONG_WAIT: Condition = at_least(Figure::Wait, 10e-3);
const LATE_PACKETS: Condition = at_least(Figure::Stack, 1e-3);
/// The other end may delay an acknowledgement by 40 ms (`TCP_DELACK_MIN` of `include/net/tcp.h`), which counts as round-trip time.
const FAR_PEER: Condition = at_least(Figure::Rtt, 50e-3);
const STOLEN: Condition = at_least(Figure::Steal, 0.1);

/// The rules. The first one with a true result names the cause. Causes that prolong other figures come first: a quota
/// prolongs the wait, and a slow reader causes drops.
pub const RULES: [Rule; 9] = [
    rule(Cause::Quota, &[at_least(Figure::Throttled, 0.05)]),
    rule(Cause::Steal, &[STOLEN, LONG_WAIT]),
    rule(Cause::Steal, &[STOLEN, LATE_PACKETS]),
    rule(
        Cause::NoCpu,
        &[
            LONG_WAIT,
            not_below(Figure::Wait, Figure::Stack),
            at_least(Figure::NodeBusy, 0.9),
            // The scheduler prefers a task that sleeps most of the time, so a lack of CPU time delays it little.
            at_least(Figure::Cpu, 0.05),
            below(Figure::Cpu, 0.8),
        ],
    ),
    rule(Cause::Reader, &[LONG_WAIT, not_below(Figure::Wait, Figure::Stack)]),
    rule(Cause::Softirqs, &[LATE_PACKETS, not_below(Figure::Stack, Figure::Wait)]),
    rule(Cause::Drops, &[at_least(Figure::Drops, 1.0), at_least(Figure::DropShare, 0.01)]),
    rule(Cause::Network, &[at_least(Figure::Retransmits, 1.0), at_least(Figure::RetransmitShare, 0.01)]),
    rule(Cause::Network, &[FAR_PEER, not_below(Figure::Rtt, Figure::Stack)]),
];

const fn rule(cause: Cause, conditions: &'static [Condition]) -> Rule {
    Rule { cause, conditions }
}

const fn at_least(figure: Figure, threshold: f64) -> Condition {
    Condition { figure, bound: Bound::AtLeast(threshold) }
}

const fn below(figure: Figure, threshold: f64) -> Condition {
    Condition { figure, bound: Bound::Below(threshold) }
}

const fn not_below(figure: Figure, other: Figure) -> Condition {
    Condition { figure, bound: Bound::NotBelow(other) }
}

impl Cause {
    /// Returns the likely cause for the figures of a workload.
    #[must_use]
    pub fn of(figures: &Figures) -> Self {
        Rule::of(figures).map_or(Self::None, |rule| rule.cause)
    }

    /// Returns the cause in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Steal => "steal",
            Self::NoCpu => "reader waits for a CPU",
            Self::Reader => "reader busy",
            Self::Softirqs => "softirqs late",
            Self::Drops => "drops",
            Self::Network => "network",
            Self::None => "none",
        }
    }

    /// Returns a sentence about the cause, with the next step.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Quota => "A CPU quota of the workload holds its tasks: raise the limit, or use fewer threads.",
            Self::Steal => "The hypervisor stops the CPUs of this machine: move the machine, or give it more CPUs.",
            Self::NoCpu => "Data waits in the sockets while all CPUs are busy with other work: the reader needs a CPU.",
            Self::Reader => {
                "Data waits in the sockets while the application does other work, or sleeps, between its reads."
            }
            Self::Softirqs => "Packets are late before they reach a socket: see the wait of softirqs and `softnet`.",
            Self::Drops => "This host drops packets: see the reasons of `undercurrent.network.drops`.",
            Self::Network => "The network or the other end is slow or loses packets; this host is not.",
            Self::None => "No figure of this workload is above a threshold.",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Rule {
    /// Returns the first rule that applies to the figures of a workload.
    #[must_use]
    pub fn of(figures: &Figures) -> Option<&'static Self> {
        RULES.iter().find(|rule| rule.conditions.iter().all(|condition| condition.holds(figures)))
    }
}

impl Condition {
    /// Returns true if the condition holds. A figure that was not measured is above no threshold, and below none.
    #[must_use]
    pub fn holds(&self, figures: &Figures) -> bool {
        let Some(value) = figures.get(self.figure) else { return false };
        match self.bound {
            Bound::AtLeast(threshold) => value >= threshold,
            Bound::Below(threshold) => value < threshold,
            Bound::NotBelow(other) => figures.get(other).is_none_or(|other| value >= other),
        }
    }

    /// Returns the condition with the measured figures.
    #[must_use]
    pub fn evidence(&self, figures: &Figures) -> String {
        let text = |figure: Figure| {
            figures.get(figure).map_or_else(|| "not measured".to_owned(), |value| figure.quantity(value).to_string())
        };
        match self.bound {
            Bound::NotBelow(other) => {
                format!("{}: {} ({}: {})", self.figure.name(), text(self.figure), other.name(), text(other))
            }
            _ => format!("{}: {} ({})", self.figure.name(), text(self.figure), self.bound_text()),
        }
    }

    fn bound_text(&self) -> String {
        match self.bound {
            Bound::AtLeast(threshold) => format!("at least {}", self.figure.quantity(threshold)),
            Bound::Below(threshold) => format!("below {}", self.figure.quantity(threshold)),
            Bound::NotBelow(other) => format!("not below {}", other.name()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.figure.name(), self.bound_text())
    }
}

/// Returns docs/causes.md.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "<!-- Generated by `cargo xtask docs`. -->\n\n# Likely causes\n\n\
         The [terminal](terminal.md) names a likely cause for each workload. The first rule of this table \
         whose conditions all\nhold names it. Figures cover one interval. A figure that was not measured fulfils no condition.\n\n\
         | cause | conditions |\n|---|---|\n",
    );
    for rule in &RULES {
        let conditions: Vec<String> = rule.conditions.iter().map(ToString::to_string).collect();
        page.push_str(&format!("| {} | {} |\n", rule.cause, conditions.join("; ")));
    }
    page.push_str("| none | no other rule |\n\n| cause | meaning |\n|---|---|\n");
    let mut causes: Vec<Cause> = RULES.iter().map(|rule| rule.cause).chain([Cause::None]).collect();
    causes.dedup();
    for cause in causes {
        page.push_str(&format!("| {cause} | {} |\n", cause.explanation()));
    }
    page.push_str("\n| figure | metrics |\n|---|---|\n");
    for figure in Figure::ALL.into_iter().filter(|figure| !figure.sources().is_empty()) {
        let mut metrics: Vec<String> = figure
            .sources()
            .iter()
            .map(|source| {
                let of = |(key, values): &(&str, &[&str])| format!("`{key}` {}", values.join(", "));
                let attributes: Vec<String> = source.attributes.iter().map(of).collect();
                let attributes =
                    if attributes.is_empty() { String::new() } else { format!(" ({})", attributes.join("; ")) };
                format!("`{}`{attributes}", source.metric)
            })
            .collect();
        metrics.dedup();
        page.push_str(&format!("| {} | {} |\n", figure.name(), metrics.join(", else ")));
    }
    page.push_str(
        "\nThe CPU time tells the two reasons of a long wait apart. The reader waits for a CPU if the node has none left and the workload uses \
         less than it could.\nA workload that uses almost none sleeps, and counts as a busy reader. So does one that is bound to one busy CPU of an \
         idle node, or has a low priority.\n\nA round-trip time below 50 ms names no cause: the other end may delay an acknowledgement by 40 ms.\n",
    );
    page
}
