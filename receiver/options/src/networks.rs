//! Networks of remote addresses, by name.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most prefixes of all networks.
const LIMIT: usize = 1024;
/// Bytes of the longest name.
const LONGEST: usize = 64;
/// Bits before the address in an IPv4-mapped IPv6 address.
const MAPPED: u32 = 96;

/// Names of networks, each with its prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "BTreeMap<String, Vec<Prefix>>", into = "BTreeMap<String, Vec<Prefix>>")]
#[schemars(with = "BTreeMap<String, Vec<Prefix>>", extend("title" = "names with lists of prefixes"))]
pub struct Networks(BTreeMap<String, Vec<Prefix>>);

impl Networks {
    /// Returns the name of the network with the longest prefix of an IPv6 or IPv4-mapped address.
    #[must_use]
    pub fn of(&self, address: u128) -> Option<&str> {
        let prefixes = self.0.iter().flat_map(|(name, prefixes)| prefixes.iter().map(move |prefix| (prefix, name)));
        let longest = prefixes.filter(|(prefix, _)| prefix.contains(address)).max_by_key(|(prefix, _)| prefix.bits);
        longest.map(|(_, name)| name.as_str())
    }

    /// Returns true if there is a network with this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl TryFrom<BTreeMap<String, Vec<Prefix>>> for Networks {
    type Error = String;

    fn try_from(networks: BTreeMap<String, Vec<Prefix>>) -> Result<Self, String> {
        let mut names: BTreeMap<Prefix, &str> = BTreeMap::new();
        for (name, prefixes) in &networks {
            if name.is_empty() || name.len() > LONGEST || name.chars().any(char::is_control) {
                return Err(format!("`{}` is no name of a network: write 1 to {LONGEST} bytes", name.escape_debug()));
            }
            for prefix in prefixes {
                if let Some(other) = names.insert(*prefix, name) {
                    return Err(format!("`{prefix}` belongs to `{other}` and to `{name}`: remove it from one"));
                }
            }
        }
        if names.len() > LIMIT {
            return Err(format!("{} prefixes are too many: name at most {LIMIT}", names.len()));
        }
        Ok(Self(networks))
    }
}

impl From<Networks> for BTreeMap<String, Vec<Prefix>> {
    fn from(networks: Networks) -> Self {
        networks.0
    }
}

/// The first bits of the addresses of a network, as `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("title" = "prefix", "examples" = ["10.0.0.0/8", "fd00::/8"]))]
pub struct Prefix {
    /// The lowest address, IPv6 or IPv4-mapped.
    first: u128,
    /// The number of fixed bits of an IPv6 address.
    bits: u32,
}

impl Prefix {
    /// Returns true if an IPv6 or IPv4-mapped address begins with the prefix.
    #[must_use]
    pub fn contains(&self, address: u128) -> bool {
        (address ^ self.first) & self.mask() == 0
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(u128::BITS - self.bits).unwrap_or(0)
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let problem = |what: &str| format!("`{text}` {what}: write a prefix such as `10.0.0.0/8`, or one address");
        let (address, length) =
            text.split_once('/').map_or((&*text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| problem("is no network"))?;
        let (first, before) = match address {
            IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), MAPPED),
            IpAddr::V6(address) => (address.to_bits(), 0),
        };
        let most = u128::BITS - before;
        let length = match length {
            None => most,
            // `parse` accepts a plus sign.
            Some(length) if length.bytes().all(|digit| digit.is_ascii_digit()) => {
                length.parse().map_err(|_| problem("has no length"))?
            }
            Some(_) => return Err(problem("has no length")),
        };
        if length > most {
            return Err(problem("is longer than an address"));
        }
        let prefix = Self { first, bits: before + length };
        if first & !prefix.mask() == 0 { Ok(prefix) } else { Err(problem("has bits after the prefix")) }
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = std::net::Ipv6Addr::from_bits(self.first);
        match address.to_ipv4_mapped().filter(|_| self.bits >= MAPPED) {
            Some(address) => write!(f, "{address}/{}", self.bits - MAPPED),
            None => write!(f, "{address}/{}", self.bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::variants::variants;

    fn prefix(text: &str) -> Result<Prefix, String> {
        Prefix::try_from(text.to_owned())
    }

    fn address(text: &str) -> u128 {
        match text.parse().expect("an address") {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn networks(list: &[(&str, &[&str])]) -> Result<Networks, String> {
        let one = |(name, prefixes): &(&str, &[&str])| {
            ((*name).to_owned(), prefixes.iter().map(|text| prefix(text).expect("a prefix")).collect())
        };
        Networks::try_from(list.iter().map(one).collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn the_longest_prefix_names_the_network() {
        let networks = networks(&[("inner", &["10.1.0.0/16", "fd00:1::/32"]), ("outer", &["10.0.0.0/8", "fd00::/8"])])
            .expect("networks");
        let of = |text: &str| networks.of(address(text)).map(str::to_owned);
        assert_eq!(of("10.1.2.3").as_deref(), Some("inner"));
        assert_eq!(of("10.2.2.3").as_deref(), Some("outer"));
        assert_eq!(of("fd00:1::7").as_deref(), Some("inner"));
        assert_eq!(of("fd12::7").as_deref(), Some("outer"));
        assert_eq!([of("11.0.0.1"), of("fe80::1")], [None, None]);
    }

    #[test]
    fn the_network_of_all_ipv6_addresses_has_the_ipv4_addresses_too() {
        let networks = networks(&[("all", &["::/0"]), ("v4", &["0.0.0.0/0"])]).expect("networks");
        assert_eq!(networks.of(address("192.0.2.1")), Some("v4"));
        assert_eq!(networks.of(address("2001:db8::1")), Some("all"));
    }

    #[test]
    fn unclear_networks_are_refused() {
        let refusal = networks(&[("a", &["10.0.0.0/8"]), ("b", &["10.0.0.0/8"])]).expect_err("refused");
        assert!(refusal.contains("`a` and to `b`"), "{refusal}");
        assert!(networks(&[("", &[])]).is_err());
        assert!(networks(&[("a\n", &[])]).is_err());
        let many: Vec<String> = (0..=LIMIT).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(networks(&[("many", &many)]).expect_err("refused").contains("too many"));
        for text in ["10.0.0.1/8", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "", "host"] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prefixes_read_back(text in variants(&["10.0.0.0/8", "192.0.2.1", "fd00::/8", "::/0", "::1", "0.0.0.0/0"])) {
            if let Ok(read) = prefix(&text) {
                prop_assert_eq!(prefix(&read.to_string()), Ok(read));
            }
        }
    }
}
