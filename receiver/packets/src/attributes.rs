//! Attributes of groups.

use crate::{
    telemetry::{AttributeKey, Value},
    text::shortened,
};

/// Longest interface name: 15 bytes, all of them escaped.
const INTERFACE_NAME: usize = 90;

/// `network.interface.name`, if packets are grouped by interface.
pub const INTERFACE: AttributeKey =
    AttributeKey::open("network.interface.name", "the receiving or sending interface").opt_in();
/// `undercurrent.network.namespace`, if packets are grouped by network namespace.
pub const NAMESPACE: AttributeKey =
    AttributeKey::open("undercurrent.network.namespace", "the inode of the packet's network namespace").opt_in();

/// Returns the value of `network.interface.name`. A local user may choose the name, in a network namespace of a user
/// namespace.
#[must_use]
pub fn interface(name: &str) -> Value {
    shortened(name, INTERFACE_NAME).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_printable() {
        assert_eq!(interface("eth0"), "eth0".into());
        assert_eq!(interface("\u{202e}0hte\x1b[2J"), "\\u{202e}0hte\\u{1b}[2J".into());
        assert_eq!(interface(&"\x7f".repeat(15)), "\\u{7f}".repeat(15).into());
    }
}
