//! Two namespaces with a wire between them that carries one IP version.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    thread,
    time::Duration,
};

use super::{
    counters::Received,
    namespace::Namespace,
    surroundings::{patience, wait_for},
};

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Ipv4,
    Ipv6,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// `network.type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }

    const fn ends(self) -> [IpAddr; 2] {
        match self {
            Self::Ipv4 => [IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2))],
            Self::Ipv6 => [
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1)),
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 2)),
            ],
        }
    }
}

/// Two namespaces and the wire. It goes when the value does.
pub struct Wire {
    pub left: Namespace,
    pub right: Namespace,
    pub version: Version,
    /// What the ends' sockets have as addresses.
    ends: [IpAddr; 2],
    /// Interfaces that go back to where they came from.
    borrowed: Option<[&'static str; 2]>,
}

impl Wire {
    /// A pair of virtual interfaces.
    pub fn veth(version: Version) -> Self {
        let (left, right) = (Namespace::new(), Namespace::new());
        left.ip(&format!("link add wire type veth peer name wire netns {}", right.path()));
        Self { left, right, version, ends: version.ends(), borrowed: None }.up(["wire", "wire"])
    }

    /// No wire at all: both ends on the loopback of one namespace.
    pub fn loopback(version: Version) -> Self {
        Self::within(Namespace::new(), version)
    }

    /// The same of this process's own namespace.
    pub fn host(version: Version) -> Self {
        Self::within(Namespace::current(), version)
    }

    fn within(left: Namespace, version: Version) -> Self {
        let address = match version {
            Version::Ipv4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Version::Ipv6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        Self { right: left.same(), left, version, ends: [address; 2], borrowed: None }
    }

    /// The virtual machine's two NICs, so that a driver, NAPI and GRO run; a pair of virtual interfaces elsewhere.
    pub fn best(version: Version) -> Self {
        const NICS: [&str; 2] = ["vnet0", "vnet1"];
        if !NICS.iter().all(|nic| Path::new("/sys/class/net").join(nic).exists()) {
            return Self::veth(version);
        }
        let (host, left, right) = (Namespace::current(), Namespace::new(), Namespace::new());
        for (nic, to) in NICS.iter().zip([&left, &right]) {
            host.ip(&format!("link set dev {nic} netns {}", to.path()));
        }
        Self { left, right, version, ends: version.ends(), borrowed: Some(NICS) }.up(NICS)
    }

    fn up(self, interfaces: [&str; 2]) -> Self {
        for (namespace, (interface, address)) in
            [&self.left, &self.right].into_iter().zip(interfaces.iter().zip(self.ends))
        {
            if self.version == Version::Ipv4 {
                // It would announce itself over IPv6 otherwise.
                namespace.run(|| fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap());
            }
            namespace.ip(&format!("link set dev {interface} up"));
            let options = match self.version {
                Version::Ipv4 => "/24",
                Version::Ipv6 => "/64 nodad",
            };
            namespace.ip(&format!("address add {address}{options} dev {interface}"));
        }
        self
    }

    /// The address of the left end.
    pub const fn client(&self) -> IpAddr {
        self.ends[0]
    }

    /// The address of the right end.
    pub const fn server(&self) -> IpAddr {
        self.ends[1]
    }

    /// From now on the left end takes nothing of what the right one sends to it: it goes to another's hardware address.
    pub fn mislead(&self) {
        self.right.ip(&format!("neigh replace {} lladdr 02:00:00:00:00:77 dev wire nud permanent", self.client()));
    }

    /// The left end gets everything again.
    pub fn lead(&self) {
        self.right.ip(&format!("neigh del {} dev wire", self.client()));
    }

    /// What both ends received since they are there.
    pub fn received(&self) -> Received {
        let left = Received::by(&self.left);
        if self.ends[0] == self.ends[1] { left } else { left + Received::by(&self.right) }
    }

    /// The same once nothing comes any more: delayed acknowledgements are on their way for a while.
    pub fn settled(&self) -> Received {
        let mut before = self.received();
        wait_for("the last packets to arrive", patience(Duration::from_secs(5)), || {
            thread::sleep(Duration::from_millis(300));
            let now = self.received();
            (std::mem::replace(&mut before, now) == now).then_some(now)
        })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(nics) = self.borrowed else { return };
        let host = Namespace::current();
        for (namespace, nic) in [&self.left, &self.right].into_iter().zip(nics) {
            namespace.ip(&format!("address flush dev {nic}"));
            namespace.ip(&format!("link set dev {nic} down"));
            namespace.ip(&format!("link set dev {nic} netns {}", host.path()));
        }
    }
}
