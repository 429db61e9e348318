//! The loader: holds the eBPF programs and executes requests of the worker.

use std::os::fd::{AsFd as _, OwnedFd};

use super::confine::Part;
use crate::{
    causes::chain,
    channel::{Channel, ChannelError},
    kernel::{
        LoadOptions,
        host::Host,
        messages::{Answer as _, Reply, Request},
    },
    loader::Service,
};

/// Serves the worker until it closes the channel.
///
/// # Errors
/// If a privilege cannot be dropped, or the worker sends a malformed request.
pub fn serve(
    mut channel: Channel,
    host: Host,
    required: &LoadOptions<'_>,
    mut start_reader: impl FnMut() -> Result<(u32, Vec<OwnedFd>), String>,
) -> Result<(), String> {
    Part::Loader.confine().map_err(|error| chain(&error))?;
    let mut service = None;
    loop {
        let request = match channel.receive() {
            Ok((request, _)) => request,
            Err(ChannelError::Closed) => return Ok(()),
            Err(error) => return Err(chain(&error)),
        };
        let (reply, descriptors) = match (request, &mut service) {
            (Request::Load, None) => load(&host, required, &mut service),
            (Request::StartReader, _) => match start_reader() {
                Ok((process, descriptors)) => (Reply::Started(process), descriptors),
                Err(error) => (Reply::Failed(error), Vec::new()),
            },
            (request, Some(service)) => service.answer(request),
            (_, None) => (Reply::Failed("the programs are not loaded yet".to_owned()), Vec::new()),
        };
        let borrowed: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
        channel.send(&reply, &borrowed).map_err(|error| chain(&error))?;
    }
}

fn load(host: &Host, required: &LoadOptions<'_>, service: &mut Option<Service>) -> (Reply, Vec<OwnedFd>) {
    let (loaded, facts) = match Service::load(host.clone(), required) {
        Ok(loaded) => loaded,
        Err(error) => return (Reply::Failed(chain(&error)), Vec::new()),
    };
    let (names, descriptors) = match loaded.maps() {
        Ok(maps) => maps.into_iter().unzip(),
        Err(error) => return (Reply::Failed(error.to_string()), Vec::new()),
    };
    *service = Some(loaded);
    (Reply::Loaded(names, Box::new(facts)), descriptors)
}
