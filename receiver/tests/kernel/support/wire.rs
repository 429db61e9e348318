//! Two namespaces with a wire between them that carries one IP version.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use super::{
    counters::Received,
    namespace::Namespace,
    surroundings::{on_one_cpu, patience, wait_for},
};

/// The interfaces of a namespace between the ends.
const PORTS: [&str; 2] = ["left", "right"];

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Ipv4,
    Ipv6,
}

impl Version {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// Returns the value of `network.type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }

    /// Returns the length of a network's prefix, with options of `ip address`.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Ipv4 => "/24",
            Self::Ipv6 => "/64 nodad",
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

/// Two namespaces and the wire. Dropping the value removes them.
pub struct Wire {
    pub left: Namespace,
    pub right: Namespace,
    pub version: Version,
    /// The addresses of the sockets at both ends.
    ends: [IpAddr; 2],
    /// A namespace on the way between the ends.
    middle: Option<Namespace>,
    /// Physical interfaces that return to their namespace afterwards.
    borrowed: Option<[&'static str; 2]>,
}

impl Wire {
    /// Lets the CPU of [`on_one_cpu`] process the packets that the right end receives. False if the kernel has no receive packet
    /// steering.
    pub fn steer(&self) -> bool {
        const STEER: &str = "mount -t sysfs none /sys && echo $1 >/sys/class/net/wire/queues/rx-0/rps_cpus";
        let last = thread::spawn(|| {
            on_one_cpu();
            rustix::thread::sched_getcpu()
        });
        let mask = format!("{:x}", 1_u64 << last.join().unwrap());
        self.right.run(|| {
            let output = Command::new("unshare").args(["--mount", "sh", "-c", STEER, "sh", &mask]).output().unwrap();
            output.status.success()
        })
    }

    /// Creates a veth pair.
    pub fn veth(version: Version) -> Self {
        let (left, right) = (Namespace::new(), Namespace::new());
        left.ip(&format!("link add wire type veth peer name wire netns {}", right.path()));
        Self { left, right, version, ends: version.ends(), middle: None, borrowed: None }.up(["wire", "wire"])
    }

    /// Creates a bridge in a third namespace, and a veth pair from it to each end.
    pub fn bridged(version: Version) -> Self {
        let wire = Self::across(version, version.ends());
        let middle = wire.middle.as_ref().unwrap();
        middle.ip("link add bridge type bridge");
        middle.ip("link set dev bridge up");
        for port in PORTS {
            middle.ip(&format!("link set dev {port} master bridge"));
        }
        wire.up(["wire", "wire"])
    }

    /// Creates a router in a third namespace, and a veth pair from it to each end.
    pub fn routed(version: Version) -> Self {
        let (forwarding, networks) = match version {
            Version::Ipv4 => ("ipv4/conf/all/forwarding", ["10.77.0.", "10.77.1."]),
            Version::Ipv6 => ("ipv6/conf/all/forwarding", ["fd00:77::", "fd00:78::"]),
        };
        let ends = [format!("{}1", networks[0]), format!("{}2", networks[1])].map(|end| end.parse().unwrap());
        let wire = Self::across(version, ends);
        let middle = wire.middle.as_ref().unwrap();
        middle.run(|| fs::write(format!("/proc/sys/net/{forwarding}"), "1").unwrap());
        for (port, network) in PORTS.iter().zip(networks) {
            middle.ip(&format!("address add {network}9{} dev {port}", version.prefix()));
        }
        let wire = wire.up(["wire", "wire"]);
        for (end, network) in [&wire.left, &wire.right].into_iter().zip(networks) {
            end.ip(&format!("route add default via {network}9"));
        }
        wire
    }

    /// Creates three namespaces, and a veth pair from the middle to each end.
    fn across(version: Version, ends: [IpAddr; 2]) -> Self {
        let (left, right, middle) = (Namespace::new(), Namespace::new(), Namespace::new());
        for (end, port) in [&left, &right].into_iter().zip(PORTS) {
            end.ip(&format!("link add wire type veth peer name {port} netns {}", middle.path()));
            middle.ip(&format!("link set dev {port} up"));
        }
        Self { left, right, version, ends, middle: Some(middle), borrowed: None }
    }

    /// Uses the loopback of one new namespace for both ends.
    pub fn loopback(version: Version) -> Self {
        Self::within(Namespace::new(), version)
    }

    /// Uses the loopback of this process's namespace for both ends.
    pub fn host(version: Version) -> Self {
        Self::within(Namespace::current(), version)
    }

    fn within(left: Namespace, version: Version) -> Self {
        let address = match version {
            Version::Ipv4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Version::Ipv6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        Self { right: left.same(), left, version, ends: [address; 2], middle: None, borrowed: None }
    }

    /// Uses the virtual machine's two NICs, so that a driver, NAPI and GRO run. On other machines it creates a
    /// veth pair.
    pub fn best(version: Version) -> Self {
        const NICS: [&str; 2] = ["vnet0", "vnet1"];
        if !NICS.iter().all(|nic| Path::new("/sys/class/net").join(nic).exists()) {
            return Self::veth(version);
        }
        let (host, left, right) = (Namespace::current(), Namespace::new(), Namespace::new());
        for (nic, to) in NICS.iter().zip([&left, &right]) {
            host.ip(&format!("link set dev {nic} netns {}", to.path()));
        }
        Self { left, right, version, ends: version.ends(), middle: None, borrowed: Some(NICS) }.up(NICS)
    }

    fn up(self, interfaces: [&str; 2]) -> Self {
        for (namespace, (interface, address)) in
            [&self.left, &self.right].into_iter().zip(interfaces.iter().zip(self.ends))
        {
            if self.version == Version::Ipv4 {
                // An IPv6 device would send neighbour solicitations and router solicitations.
                namespace.run(|| fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap());
            }
            namespace.ip(&format!("link set dev {interface} up"));
            namespace.ip(&format!("address add {address}{} dev {interface}", self.version.prefix()));
        }
        self
    }

    /// Tracks connections in the namespace between the ends.
    pub fn track_connections(&self) {
        const RULES: &str = "table inet forward { chain forward { type filter hook forward priority 0; ct state new counter accept; }; }";
        let output = self.middle.as_ref().unwrap().run(|| Command::new("nft").arg(RULES).output().unwrap());
        assert!(output.status.success(), "nft: {output:?}");
    }

    /// Adds a qdisc in the namespace between the ends.
    pub fn hold(&self, qdisc: &str) {
        self.middle.as_ref().unwrap().tc(qdisc);
    }

    /// Returns the address of the left end.
    pub const fn client(&self) -> IpAddr {
        self.ends[0]
    }

    /// Returns the address of the right end.
    pub const fn server(&self) -> IpAddr {
        self.ends[1]
    }

    /// Diverts packets from the right end to a different hardware address, so that the left end does not accept
    /// them.
    pub fn mislead(&self) {
        self.right.ip(&format!("neigh replace {} lladdr 02:00:00:00:00:77 dev wire nud permanent", self.client()));
    }

    /// Ends the diversion.
    pub fn lead(&self) {
        self.right.ip(&format!("neigh del {} dev wire", self.client()));
    }

    /// Returns the packets that both ends received since their creation.
    pub fn received(&self) -> Received {
        let left = Received::by(&self.left);
        if self.ends[0] == self.ends[1] { left } else { left + Received::by(&self.right) }
    }

    /// Returns the received packets after traffic has settled: delayed acknowledgements may be in flight.
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
