//! A power meter and its reading.

use std::io;

use serde::{Deserialize, Serialize};

use crate::telemetry::{Microjoules, Watts};

/// The power meters of a node at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meters {
    /// Each meter once, in the order of the ids.
    pub meters: Vec<Meter>,
    /// The reason if the tree cannot be read.
    pub problem: Option<String>,
}

/// An energy counter or a power sensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// The name, unique among the meters of the node: the zone's name, below the name of its parent, or the driver's name and the
    /// sensor's label.
    pub id: String,
    /// The interface of the meter.
    pub driver: Driver,
    /// The measured part of the node.
    pub object: Object,
    /// The reading, or the reason why there is none.
    pub reading: Result<Quantity, Unreadable>,
}

/// The interface of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Driver {
    /// RAPL, through powercap.
    Rapl,
    /// A hwmon driver, including ACPI power meters.
    Hwmon,
}

/// A part of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Object {
    /// A processor package.
    Package,
    /// The cores of a package, a part of [`Self::Package`].
    Core,
    /// Parts of a package besides the cores, a part of [`Self::Package`].
    Uncore,
    /// Memory, which no package contains.
    Dram,
    /// The whole platform.
    Platform,
}

/// The quantity that a meter measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantity {
    /// A counter of energy, with the energy after which it wraps around.
    Energy(Microjoules, Option<Microjoules>),
    /// A power.
    Power(Watts),
}

/// The reason for a missing reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unreadable {
    /// The file does not exist.
    #[error("its file is missing")]
    Missing,
    /// The permissions of the file forbid it.
    #[error("only root may read its counter since Linux 5.10: run as root, or grant CAP_DAC_READ_SEARCH")]
    Denied,
    /// The content is invalid.
    #[error("its file has an invalid content")]
    Garbage,
    /// The kernel's error.
    #[error("its file cannot be read: {0}")]
    Failed(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Failed(error.to_string()),
        }
    }
}
