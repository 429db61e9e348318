//! The kernel's drop reasons: names for the numbers that programs count.

use serde::{Deserialize, Serialize};

/// The name for drops without a reason; kernels with drop reasons use it too.
pub const NOT_SPECIFIED: &str = "not_specified";
/// The name for reasons that the kernel's BTF does not name.
pub const UNNAMED: &str = "other";

/// The running kernel's reasons, in lower case and without the common prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons(pub Vec<Name>);

/// The meaning of a number of the kernel's enumeration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Name {
    /// The name of a reason.
    Reason(String),
    /// A number for packets that were not dropped.
    NoDrop,
    /// A number that the kernel's BTF does not name.
    Unknown,
}

impl Reasons {
    /// Returns the name of the reason that counts at this index; `None` if its packets were not dropped.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&str> {
        match self.0.get(index) {
            Some(Name::Reason(name)) => Some(name),
            Some(Name::NoDrop) => None,
            Some(Name::Unknown) | None => Some(UNNAMED),
        }
    }
}
