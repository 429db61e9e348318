//! The power meters of the node.

use std::io;

use super::{Reader, message::ReadMeters};
use crate::sysfs::Meters;

/// Reads the power meters through the reader: only root may read the counters of RAPL.
#[derive(Clone)]
pub struct PowerMeters(Reader);

impl PowerMeters {
    /// Meters below the reader's root of sysfs.
    #[must_use]
    pub const fn through(reader: Reader) -> Self {
        Self(reader)
    }

    /// Returns every meter with its reading.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn read(&self) -> io::Result<Meters> {
        self.0.files(ReadMeters {})
    }
}
