//! Totals by workload, role, peer and port: the sums of the growth of edges.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::{peers::End, transactions::Role};

use super::{table::Growth, totals::Totals};
use crate::{options::Networks, workloads::Slot};

/// The most series. The growth of further ones counts for [`Peer::Other`] without a port.
const LIMIT: usize = 4096;

/// The other end of connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A workload of this node.
    Workload(Slot),
    /// A network that the configuration names.
    Network(String),
    /// Another host, or a peer beyond a limit.
    Other,
}

/// The identity of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The slot of the workload.
    pub slot: Slot,
    /// True if the workload is the server.
    pub is_server: bool,
    /// The other end.
    pub peer: Peer,
    /// The server's port; `None` beyond the limit of series.
    pub port: Option<u16>,
}

impl Key {
    /// Returns the role of the workload.
    pub const fn role(&self) -> Role {
        if self.is_server { Role::Server } else { Role::Client }
    }
}

/// The totals of all series.
#[derive(Default)]
pub struct Series(BTreeMap<Key, Totals>);

impl Series {
    /// Adds the growth of an edge.
    pub fn add(&mut self, growth: &Growth, networks: &Networks) {
        let end = growth.end;
        let peer = peer(end, growth.peer, networks);
        let is_server = matches!(end.role(), Role::Server);
        let mut key = Key { slot: end.slot(), is_server, peer, port: Some(end.port()) };
        if self.0.len() >= LIMIT && !self.0.contains_key(&key) {
            key = Key { peer: Peer::Other, port: None, ..key };
        }
        match self.0.get_mut(&key) {
            Some(totals) => totals.add(&growth.totals),
            None => {
                self.0.insert(key, growth.totals.clone());
            }
        }
    }

    /// Returns every series.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Totals)> {
        self.0.iter()
    }

    /// Removes the series from and to a workload.
    pub fn forget(&mut self, slot: Slot) {
        self.0.retain(|key, _| key.slot != slot && key.peer != Peer::Workload(slot));
    }
}

/// Returns the other end of an edge.
fn peer(end: End, peer: [u64; 2], networks: &Networks) -> Peer {
    if end.peer_is_local() {
        return Peer::Workload(Slot(peer[0] as u16));
    }
    let [first, second] = peer.map(u64::to_ne_bytes);
    let mut address = [0; 16];
    address[..8].copy_from_slice(&first);
    address[8..].copy_from_slice(&second);
    networks.of(u128::from_be_bytes(address)).map_or(Peer::Other, |name| Peer::Network(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use undercurrent_ebpf::abi::peers::{Amount, mapped};

    use super::*;
    use crate::telemetry::Scale;

    fn growth(end: End, peer: [u64; 2]) -> Growth {
        let mut words = [0; 5];
        words[Amount::Untimed as usize] = 1;
        Growth { end, peer, totals: Totals::of(words, Scale::DEFAULT) }
    }

    fn halves(address: Ipv6Addr) -> [u64; 2] {
        let bytes = address.octets();
        [0, 8].map(|from| u64::from_ne_bytes(bytes[from..from + 8].try_into().expect("eight bytes")))
    }

    #[test]
    fn addresses_are_resolved_to_networks() {
        let networks: Networks =
            serde_json::from_str(r#"{"shop": ["10.1.0.0/16"], "inside": ["fd00::/8"]}"#).expect("networks");
        let mut series = Series::default();
        let end = End::new(Slot(2), Role::Client, 443, false);
        series.add(&growth(end, mapped(u32::from_ne_bytes([10, 1, 2, 3]))), &networks);
        series.add(&growth(end, mapped(u32::from_ne_bytes([10, 1, 9, 9]))), &networks);
        series.add(&growth(end, halves("fd00::7".parse().expect("an address"))), &networks);
        series.add(&growth(end, mapped(u32::from_ne_bytes([192, 0, 2, 1]))), &networks);
        series.add(&growth(End::new(Slot(2), Role::Client, 443, true), [5, 0]), &networks);
        let counts: Vec<(Peer, u64)> =
            series.iter().map(|(key, totals)| (key.peer.clone(), totals.transactions())).collect();
        let network = |name: &str| Peer::Network(name.to_owned());
        assert_eq!(
            counts,
            [(Peer::Workload(Slot(5)), 1), (network("inside"), 1), (network("shop"), 2), (Peer::Other, 1)]
        );
    }

    #[test]
    fn series_beyond_the_limit_are_other() {
        let (mut series, networks) = (Series::default(), Networks::default());
        for port in 0..LIMIT + 10 {
            let end = End::new(Slot(2), Role::Server, u16::try_from(port).expect("a port"), true);
            series.add(&growth(end, [3, 0]), &networks);
        }
        assert_eq!(series.iter().count(), LIMIT + 1);
        let (_, other) = series.iter().find(|(key, _)| key.peer == Peer::Other).expect("the rest");
        assert_eq!(other.transactions(), 10);
        series.forget(Slot(3));
        assert_eq!(series.iter().count(), 1);
        series.forget(Slot(2));
        assert_eq!(series.iter().count(), 0);
    }
}
