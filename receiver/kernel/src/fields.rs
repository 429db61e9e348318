//! Facts about the kernel fields that programs read.

use serde::{Deserialize, Serialize};

/// A field that programs read, in the form that `doctor` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldFact {
    /// The symbol of the global; see [`FieldDeclaration::symbol`].
    pub symbol: String,
    /// The reason why programs cannot read the field; `None` if they can.
    pub absence: Option<String>,
}
