//! The power meters of the node.

use std::io;

use super::{FileReply, FileRequest, Reader};
use crate::sysfs::{Meters, Sysfs};

/// Reads the power meters in this process, or through the reader: only root may read the counters of RAPL.
#[derive(Clone)]
pub enum PowerMeters {
    /// This process reads.
    Here(Sysfs),
    /// The reader reads below its own root of sysfs.
    Through(Reader),
}

impl PowerMeters {
    /// Returns every meter with its reading.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn read(&self) -> io::Result<Meters> {
        let reader = match self {
            Self::Here(sysfs) => return Ok(sysfs.meters()),
            Self::Through(reader) => reader,
        };
        match reader.files(&FileRequest::PowerMeters)? {
            FileReply::PowerMeters(meters) => Ok(meters),
            _ => Err(io::Error::other("the reader sent an unexpected reply")),
        }
    }
}
