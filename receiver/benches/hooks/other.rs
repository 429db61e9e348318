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
    pub fn runs(&self) -> Box<dyn Iterator<Item = (&str, Runs)> + '_> {
        match self {
            Self::Empty(baseline) => Box::new(baseline.runs()),
            Self::Product(kernel) => Box::new(kernel.runs()),
        }
    }
}
