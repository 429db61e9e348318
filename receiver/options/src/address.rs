//! Addresses on this host.

use std::{fmt, net::SocketAddr, path::PathBuf};

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
}
