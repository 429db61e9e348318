//! Addresses on this host.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An address that other hosts cannot reach: a port of the loopback interface, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("title" = "local address", "pattern" = "^(unix:///|127\\.|\\[::1\\]:)"))]
pub enum LocalAddress {
    /// A port of the loopback interface.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

const UNIX: &str = "unix://";

impl TryFrom<String> for LocalAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let problem = match (text.strip_prefix(UNIX), text.parse::<SocketAddr>()) {
            (Some(path), _) if path.starts_with('/') => return Ok(Self::Unix(path.into())),
            (_, Ok(address)) if address.ip().is_loopback() => return Ok(Self::Tcp(address)),
            (_, Ok(_)) => "is reachable from other hosts",
            _ => "is no local address",
        };
        Err(format!("`{text}` {problem}: write `127.0.0.1:PORT`, `[::1]:PORT` or `unix:///PATH`"))
    }
}

impl From<LocalAddress> for String {
    fn from(address: LocalAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// An address that the sidecar answers readers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("title" = "address with a port", "pattern" = ":[0-9]+$"))]
pub struct ListenAddress(SocketAddr);

impl ListenAddress {
    /// Returns the address and the port.
    #[must_use]
    pub const fn socket(self) -> SocketAddr {
        self.0
    }

    /// Returns true if other hosts can reach the address.
    #[must_use]
    pub const fn is_exposed(self) -> bool {
        !self.0.ip().is_loopback()
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.parse().map(Self);
        address.map_err(|_| format!("`{text}` is no address with a port: write `127.0.0.1:9464` or `[::1]:9464`"))
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_addresses_are_accepted() {
        for text in ["127.0.0.1:13134", "127.9.9.9:1", "[::1]:80", "unix:///run/health.sock"] {
            assert_eq!(LocalAddress::try_from(text.to_owned()).map(String::from), Ok(text.to_owned()));
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost:1", "13134", "unix://run/x", "/run/x", ""] {
            assert!(LocalAddress::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn readers_need_an_address_with_a_port() {
        for (text, is_exposed) in
            [("127.0.0.1:9464", false), ("[::1]:1", false), ("0.0.0.0:9464", true), ("[2001:db8::1]:9464", true)]
        {
            let address: ListenAddress = text.parse().expect("an address");
            assert_eq!((String::from(address), address.is_exposed()), (text.to_owned(), is_exposed));
        }
        for text in ["localhost:9464", "9464", ":9464", "127.0.0.1", "unix:///run/x", ""] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }
}
