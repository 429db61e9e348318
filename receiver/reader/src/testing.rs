//! A reader in this process, for the tests of other packages.

use std::{os::fd::OwnedFd, thread};

use crate::{
    Places, Reader,
    channel::{Call as _, Channel, Reply},
    kernel::{
        client::Client,
        messages::{Answer, Request, StartReader},
    },
    serve,
};

/// Starts readers as threads.
struct Threads(Places);

impl Answer for Threads {
    fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::StartReader(_) => StartReader::reply_with(self.start()),
            _ => Reply::failed("this loader starts readers only"),
        }
    }
}

impl Threads {
    fn start(&self) -> std::io::Result<(u32, Vec<OwnedFd>)> {
        let ((files, their_files), (foreign, their_foreign)) = (Channel::pair()?, Channel::pair()?);
        let places = self.0.clone();
        thread::spawn(move || serve(their_files, their_foreign, &places));
        Ok((std::process::id(), vec![files.into(), foreign.into()]))
    }
}

/// Starts a reader with these places in a thread, which ends with the last clone of the connection.
#[must_use]
pub fn reader(places: Places) -> Reader {
    Reader::start(Client::in_process(Box::new(Threads(places)))).expect("a reader")
}
