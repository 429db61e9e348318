//! The pages of the screen. Each section of the view is on one page.

use crate::view::{Section, View};

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Page {
    /// One line for each workload, slow packets and notices.
    #[default]
    Workloads,
    /// CPU time: the tree of network functions, events, workloads, softnet.
    Cpu,
    /// Durations, round-trip times, retransmits and drops.
    Latency,
    /// Slow packets with their steps.
    Slow,
    /// Energy.
    Energy,
    /// The cost of the sidecar, its exports and its notices.
    Sidecar,
}

/// The beginnings of the titles of sections about CPU time, and of those about energy. The other sections are on the page of latency.
const CPU: [&str; 7] =
    ["network.function", "network.estimated_cpu", "network.cpu", "io_uring", "cpu.", "softnet", "threads"];
const ENERGY: [&str; 2] = ["energy", "hw."];

impl Page {
    pub(crate) const ALL: [Self; 6] =
        [Self::Workloads, Self::Cpu, Self::Latency, Self::Slow, Self::Energy, Self::Sidecar];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Workloads => "workloads",
            Self::Cpu => "network CPU",
            Self::Latency => "latency",
            Self::Slow => "slow packets",
            Self::Energy => "energy",
            Self::Sidecar => "sidecar",
        }
    }

    /// Returns a sentence for a page without content.
    pub(crate) const fn empty(self) -> &'static str {
        match self {
            Self::Workloads => "No workload had network traffic.",
            Self::Cpu => "No CPU time was measured.",
            Self::Latency => "No packet was measured.",
            Self::Slow => "No packet was slow.",
            Self::Energy => "This machine has no power meter.",
            Self::Sidecar => "The sidecar has no metrics of its own.",
        }
    }

    /// Returns the page at a distance.
    pub(crate) fn step(self, by: usize) -> Self {
        let position = Self::ALL.iter().position(|page| *page == self).unwrap_or(0);
        Self::ALL[(position + by) % Self::ALL.len()]
    }

    /// Returns the sections of the page.
    pub(crate) fn sections(self, view: &View) -> Vec<&Section> {
        let of = |page: Self| view.sections.iter().filter(move |section| Self::of(&section.title) == page).collect();
        match self {
            Self::Workloads => Vec::new(),
            Self::Cpu | Self::Latency | Self::Energy => of(self),
            Self::Slow => view.slow_packets.iter().collect(),
            Self::Sidecar => view.sidecar.iter().collect(),
        }
    }

    /// Returns the page of a section.
    fn of(title: &str) -> Self {
        let begins = |known: &[&str]| known.iter().any(|beginning| title.starts_with(beginning));
        match title {
            "slow packets" => Self::Slow,
            _ if begins(&CPU) => Self::Cpu,
            _ if begins(&ENERGY) => Self::Energy,
            _ => Self::Latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_section_is_on_its_page() {
        for (title, page) in [
            ("cpu.time", Page::Cpu),
            ("threads", Page::Cpu),
            ("softnet.thread.wait.time", Page::Cpu),
            ("hw.energy", Page::Energy),
            ("tcp.io", Page::Latency),
            ("slow packets", Page::Slow),
        ] {
            assert_eq!(Page::of(title), page, "{title}");
        }
    }
}
