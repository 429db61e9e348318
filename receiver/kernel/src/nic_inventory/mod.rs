//! The search for NICs that timestamp received packets.

mod interface;
mod reading;

use std::io;

use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::driver::NICS;

pub use self::{
    interface::{Interface, namespace},
    reading::{Clock, Reading},
};

/// The result of a search for NICs that timestamp packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicInventory {
    /// Interfaces of NICs with a readable clock.
    pub usable: Vec<Interface>,
    /// The reasons why the other NICs cannot be used.
    pub problems: Vec<String>,
}

impl NicInventory {
    /// Searches the interfaces of this process's network namespace.
    #[must_use]
    pub fn now() -> Self {
        match interface::with_timestamps() {
            Ok(interfaces) => Self::among(interfaces, |number| Clock::open(number).map(drop)),
            Err(error) => Self { problems: vec![format!("cannot list interfaces: {error}")], ..Self::default() },
        }
    }

    fn among(interfaces: Vec<Interface>, open: impl Fn(u32) -> io::Result<()>) -> Self {
        let mut found = Self::default();
        for interface in interfaces {
            match problem(&interface, &open) {
                Some(problem) => found.problems.push(problem),
                None if found.usable.len() == NICS => {
                    let name = &interface.name;
                    found.problems.push(format!("{name} is not measured: the maximum is {NICS} NICs"));
                }
                None => found.usable.push(interface),
            }
        }
        found
    }
}

/// Returns the reason why the timestamps of an interface's NIC cannot be used.
fn problem(interface: &Interface, open: impl Fn(u32) -> io::Result<()>) -> Option<String> {
    let Interface { name, clock, .. } = interface;
    let Some(number) = *clock else {
        return Some(format!("the NIC of {name} timestamps packets, but its driver registers no PTP clock"));
    };
    let error = open(number).err()?;
    let path = Clock::path(number);
    Some(format!(
        "cannot open {}, the clock of the NIC of {name}: {error}; run as root, and in a container add the device \
         (docker run --device {0}; in Kubernetes a privileged container with the host's /dev)",
        path.display()
    ))
}

#[cfg(test)]
mod tests;
