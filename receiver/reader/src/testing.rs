//! A reader in this process, for the tests of other packages.

use std::{os::fd::OwnedFd, thread};

use crate::{Places, Reader, channel::Channel, serve};

fn start(places: &Places) -> std::io::Result<(u32, Vec<OwnedFd>)> {
    let ((files, their_files), (foreign, their_foreign)) = (Channel::pair()?, Channel::pair()?);
    let places = places.clone();
    thread::spawn(move || serve(their_files, their_foreign, &places));
    Ok((std::process::id(), vec![files.into(), foreign.into()]))
}

/// Starts a reader with these places in a thread, which ends with the last clone of the connection.
#[must_use]
pub fn reader(places: Places) -> Reader {
    Reader::start(Box::new(move || start(&places))).expect("a reader")
}
