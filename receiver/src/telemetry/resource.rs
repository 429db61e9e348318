//! Who a measurement is about.

use super::Attributes;

/// The entity that measurements describe: the node, or a workload on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Its attributes, by the semantic conventions for resources.
    pub attributes: Attributes,
}
