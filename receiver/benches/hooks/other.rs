//! The programs for comparison with the sidecar's programs.

use undercurrent::kernel::{Kernel, statistics::Runs};

use crate::baseline::Baseline;

/// The programs to compare with. Dropping the value detaches them.
pub enum Other {
    /// Empty programs.
    Empty(Baseline),
    /// The sidecar's programs with other settings.
    Product(Box<Kernel>),
}

impl Other {
    /// Returns the runs of each program by its symbol.
    pub fn runs(&self) -> Vec<(String, Runs)> {
        match self {
            Self::Empty(baseline) => baseline.runs().map(|(symbol, runs)| (symbol.to_owned(), runs)).collect(),
            Self::Product(kernel) => kernel.runs().into_iter().flatten().collect(),
        }
    }
}
