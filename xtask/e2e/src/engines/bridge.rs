//! A bridge for the containers of an engine without network support.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU32, Ordering},
};

use xtask_common::machine;

use super::Daemon;

/// The bridge's network, with a prefix of 16 bits.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 0);

const CREATE: &str = r#"
ip link add name ports type bridge
ip link set ports up
"#;

/// Creates a port. `$1` is its name, `$2` its address with the prefix length.
const JOIN: &str = r#"
ip netns add "$1"
ip link add name "$1" type veth peer name eth0 netns "$1"
ip link set "$1" master ports up
ip -n "$1" link set lo up
ip -n "$1" address add "$2" dev eth0
ip -n "$1" link set eth0 up
"#;

/// A bridge in a daemon's network namespace. It ends with the daemon.
pub struct Bridge {
    ports: AtomicU32,
}

/// A network namespace connected to the bridge.
pub struct Port {
    name: String,
    address: Ipv4Addr,
}

impl Bridge {
    /// Creates a bridge without ports.
    pub fn create(daemon: &Daemon) -> anyhow::Result<Self> {
        machine::output(daemon.inside().args(["sh", "-euc", CREATE]))?;
        Ok(Self { ports: AtomicU32::new(0) })
    }

    /// Creates a port.
    pub fn join(&self, daemon: &Daemon) -> anyhow::Result<Port> {
        let number = self.ports.fetch_add(1, Ordering::Relaxed) + 1;
        let port = Port { name: format!("port{number}"), address: Ipv4Addr::from(u32::from(NETWORK) + number) };
        let address = format!("{}/16", port.address);
        machine::output(daemon.inside().args(["sh", "-euc", JOIN, "sh", &port.name, &address]))?;
        Ok(port)
    }

    /// Removes a port.
    pub fn leave(&self, daemon: &Daemon, port: &Port) -> anyhow::Result<()> {
        machine::output(daemon.inside().args(["ip", "netns", "delete", &port.name])).map(drop)
    }
}

impl Port {
    /// Returns the name, which is unique on the bridge.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the path of the namespace's file in the daemon's mount namespace.
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }
}
