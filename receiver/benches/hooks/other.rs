//! The programs beside the product's.

use undercurrent::kernel::{Kernel, statistics::Runs};

use crate::baseline::Baseline;

/// What the product's programs are compared with. All are gone with the value.
pub enum Other {
    /// Programs that do nothing.
    Empty(Baseline),
    /// The product's own, with other settings.
    Product(Box<Kernel>),
}

impl Other {
    /// How often each program ran, by its symbol.
    pub fn runs(&self) -> Vec<(String, Runs)> {
        match self {
            Self::Empty(baseline) => baseline.runs().map(|(symbol, runs)| (symbol.to_owned(), runs)).collect(),
            Self::Product(kernel) => kernel.runs().into_iter().flatten().collect(),
        }
    }
}
