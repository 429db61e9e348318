//! Two network namespaces with a veth pair.

use std::process::Command;

use xtask_common::machine;

/// Two network namespaces with a veth pair. Dropping it removes them.
pub struct Wire {
    /// The names of the namespaces.
    pub names: [String; 2],
}

impl Wire {
    /// Creates the namespaces, each with an address.
    pub fn new(addresses: [&str; 2]) -> anyhow::Result<Self> {
        let names = ["left", "right"].map(|end| format!("undercurrent-{end}-{}", std::process::id()));
        let wire = Self { names };
        let [left, right] = &wire.names;
        ip(&["netns", "add", left])?;
        ip(&["netns", "add", right])?;
        ip(&["-n", left, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", right])?;
        for (name, address) in wire.names.iter().zip(addresses) {
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            ip(&[&["-n", name, "address", "add", address, "dev", "wire"], nodad].concat())?;
            ip(&["-n", name, "link", "set", "wire", "up"])?;
            // gRPC uses IPv6 only if `::1` exists.
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| drop(ip(&["netns", "delete", name])));
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    machine::output(Command::new("ip").args(arguments))
}
