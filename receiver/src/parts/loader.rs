//! The loader: holds the eBPF programs and executes requests of the worker.

use std::os::fd::OwnedFd;

use super::{
    confine::{Part, Reach, freeze_loader},
    orders::LoaderOrder,
};
use crate::{
    causes::chain,
    channel::{Call as _, Channel, ChannelError, Reply},
    kernel::{
        LoadOptions,
        host::Host,
        messages::{Answer as _, Freeze, Load, Loaded, Request},
    },
    loader::Service,
};

/// Serves the worker until it closes the channel.
///
/// # Errors
/// If a privilege cannot be dropped, or the worker sends a malformed request.
pub fn serve(mut channel: Channel, order: &LoaderOrder) -> Result<(), String> {
    Part::Loader.confine(&Reach::default()).map_err(|error| chain(&error))?;
    channel.serve();
    let hooks = order.hooks().map_err(|error| error.to_string())?;
    let required = order.options(&hooks);
    let mut service = None;
    loop {
        let request = match channel.receive() {
            Ok((request, _)) => request,
            Err(ChannelError::Closed) => return Ok(()),
            Err(error) => return Err(chain(&error)),
        };
        let reply = match (request, &mut service) {
            (Request::Load(_), None) => Load::reply_with(load(&order.host, &required, &mut service)),
            (Request::Freeze(_), _) => Freeze::reply(freeze_loader()),
            (request, Some(service)) => service.answer(request),
            (_, None) => Reply::failed("the programs are not loaded yet"),
        };
        channel.reply(&reply).map_err(|error| chain(&error))?;
    }
}

fn load(
    host: &Host,
    required: &LoadOptions<'_>,
    service: &mut Option<Service>,
) -> Result<(Loaded, Vec<OwnedFd>), String> {
    let (loaded, facts) = Service::load(host.clone(), required).map_err(|error| chain(&error))?;
    let reply = loaded.loaded(facts);
    *service = Some(loaded);
    reply
}
