//! Reads the kernel's own counters.

use std::{
    collections::BTreeSet,
    fs,
    iter::Sum,
    ops::{Add, Sub},
    os::unix::fs::MetadataExt as _,
};

use super::{
    cgroups::Group,
    namespace::Namespace,
    wire::{Version, Wire},
};

/// Packets that namespaces received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// TCP segments (`InSegs`): one counter for both IP versions.
    pub tcp: u64,
    /// UDP datagrams that an application read, by version (`InDatagrams`, `Udp6InDatagrams`).
    pub udp: [u64; 2],
    /// Packets at the network layer, by version (`InReceives`, `Ip6InReceives`).
    pub ip: [u64; 2],
}

impl Received {
    /// Returns the counts of one namespace since its creation.
    pub fn by(namespace: &Namespace) -> Self {
        namespace.run(|| Self::read("/proc/thread-self/net"))
    }

    /// Returns the counts of all namespaces with a process: those of the host and of other programs.
    pub fn by_processes() -> Self {
        Self::by_processes_outside(BTreeSet::new())
    }

    /// Returns the counts of all namespaces with a process except the ends of a wire.
    pub fn by_others(wire: &Wire) -> Self {
        Self::by_processes_outside([&wire.left, &wire.right].map(Namespace::inode).into())
    }

    fn by_processes_outside(mut seen: BTreeSet<u64>) -> Self {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let networks = processes
            .map(|process| process.path())
            .filter(|process| fs::metadata(process.join("ns/net")).is_ok_and(|namespace| seen.insert(namespace.ino())));
        networks.map(|process| Self::read(&process.join("net").to_string_lossy())).sum()
    }

    fn read(folder: &str) -> Self {
        // The process may have ended.
        let [snmp, snmp6] =
            ["snmp", "snmp6"].map(|name| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default());
        let old = |group, name| of_table(&snmp, group, name).unwrap_or(0);
        let new = |name| of_list(&snmp6, name).unwrap_or(0);
        Self {
            tcp: old("Tcp:", "InSegs"),
            udp: [old("Udp:", "InDatagrams"), new("Udp6InDatagrams")],
            ip: [old("Ip:", "InReceives"), new("Ip6InReceives")],
        }
    }

    /// Returns the UDP datagrams of one version.
    pub const fn udp_of(&self, version: Version) -> u64 {
        self.udp[version as usize]
    }

    /// Returns the packets of one version.
    pub const fn ip_of(&self, version: Version) -> u64 {
        self.ip[version as usize]
    }
}

impl Sub for Received {
    type Output = Self;

    /// Returns the growth, or zero if a namespace ended meanwhile.
    fn sub(self, before: Self) -> Self {
        let added =
            |now: [u64; 2], before: [u64; 2]| [0, 1].map(|version| now[version].saturating_sub(before[version]));
        Self {
            tcp: self.tcp.saturating_sub(before.tcp),
            udp: added(self.udp, before.udp),
            ip: added(self.ip, before.ip),
        }
    }
}

impl Add for Received {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let both = |one: [u64; 2], other: [u64; 2]| [0, 1].map(|version| one[version] + other[version]);
        Self { tcp: self.tcp + other.tcp, udp: both(self.udp, other.udp), ip: both(self.ip, other.ip) }
    }
}

impl Sum for Received {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// Returns the segments that a namespace's TCP sent (`OutSegs`), acknowledgements among them.
pub fn segments_sent(namespace: &Namespace) -> u64 {
    let snmp = namespace.run(|| fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    of_table(&snmp, "Tcp:", "OutSegs").unwrap()
}

/// Returns the segments that a namespace's TCP retransmitted (`RetransSegs`), without failed retransmissions
/// (`TCPRetransFail`).
pub fn retransmitted(namespace: &Namespace) -> u64 {
    namespace.run(|| {
        let [snmp, netstat] =
            ["snmp", "netstat"].map(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")));
        let tried = of_table(&snmp.unwrap(), "Tcp:", "RetransSegs").unwrap();
        tried - of_table(&netstat.unwrap(), "TcpExt:", "TCPRetransFail").unwrap()
    })
}

/// Returns the segments that a namespace's TCP received out of order (`TCPOFOQueue`).
pub fn out_of_order(namespace: &Namespace) -> u64 {
    let netstat = namespace.run(|| fs::read_to_string("/proc/thread-self/net/netstat").unwrap());
    of_table(&netstat, "TcpExt:", "TCPOFOQueue").unwrap()
}

/// Returns the connection attempts that a namespace's TCP dropped because the accept queue was full (`ListenOverflows`).
pub fn overflowed(namespace: &Namespace) -> u64 {
    let netstat = namespace.run(|| fs::read_to_string("/proc/thread-self/net/netstat").unwrap());
    of_table(&netstat, "TcpExt:", "ListenOverflows").unwrap()
}

/// Returns the UDP datagrams that a namespace dropped: those to ports without a socket (`NoPorts`), and those that
/// found a full receive buffer (`RcvbufErrors`).
pub fn dropped(namespace: &Namespace, version: Version) -> [u64; 2] {
    let names = ["NoPorts", "RcvbufErrors"];
    namespace.run(|| {
        let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
        match version {
            Version::Ipv4 => names.map(|name| of_table(&read("snmp"), "Udp:", name).unwrap()),
            Version::Ipv6 => names.map(|name| of_list(&read("snmp6"), &format!("Udp6{name}")).unwrap()),
        }
    })
}

/// Returns the packets that a namespace's devices sent, except loopback.
pub fn transmitted(namespace: &Namespace) -> u64 {
    let devices = namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let devices = devices.lines().filter_map(|line| line.trim().split_once(':')).filter(|(device, _)| *device != "lo");
    // Eight fields of received packets and the sent bytes come first.
    devices.map(|(_, figures)| figures.split_whitespace().nth(9).unwrap().parse::<u64>().unwrap()).sum()
}

/// Returns the CPU time of a cgroup in seconds, from `cpuacct.usage` of version 1 or `cpu.stat` of version 2.
pub fn cpu_time(group: &Group) -> f64 {
    let read = |name: &str| group.own().iter().find_map(|directory| fs::read_to_string(directory.join(name)).ok());
    if let Some(nanoseconds) = read("cpuacct.usage") {
        return nanoseconds.trim().parse::<f64>().unwrap() / 1e9;
    }
    let statistics = read("cpu.stat").expect("cgroup v2 has cpu.stat");
    let usage = statistics.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<f64>().ok());
    usage.expect("cpu.stat has the CPU time") / 1e6
}

/// Returns a value of `/proc/net/snmp`: a line of names, then a line of values.
fn of_table(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, figures) = (lines.next()?, lines.next()?);
    names.split_whitespace().zip(figures.split_whitespace()).find(|(found, _)| *found == name)?.1.parse().ok()
}

/// Returns a value of `/proc/net/snmp6`: a name and a value on each line.
fn of_list(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}
