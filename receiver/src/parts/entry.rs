//! The beginning of a part: the program was executed under the name of the part.

use std::{ffi::OsString, path::PathBuf};

use super::{
    Part, Reach, loader,
    orders::{LoaderOrder, Log},
    program::inherited,
    supervisor,
};
use crate::{
    causes::chain,
    channel::Channel,
    reader::{self, Places},
};

/// Runs a part if the arguments of this process begin with the name of its process. Returns `None` otherwise, else whether the part
/// succeeded.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Option<bool> {
    let mut arguments = arguments.into_iter();
    let name = arguments.next()?;
    let part = Part::ALL
        .into_iter()
        .find(|part| *part != Part::Worker && part.process_name().to_bytes() == name.as_encoded_bytes())?;
    let name = part.process_name();
    let arguments: Vec<OsString> = arguments.collect();
    let ended = rustix::thread::set_name(name).map_err(|error| error.to_string()).and_then(|()| match part {
        Part::Supervisor => supervise(&arguments),
        Part::Loader => load(&arguments),
        Part::Reader => read(&arguments),
        Part::Writer => write(&arguments),
        Part::Worker => Ok(()),
    });
    let ended = ended.inspect_err(|error| fail(&name.to_string_lossy(), error));
    Some(ended.is_ok())
}

/// Reports a failure in the log, or on standard error before the part has a log.
fn fail(name: &str, error: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::error!("{name} failed: {error}");
    } else {
        eprintln!("{name} failed: {error}");
    }
}

fn channels<const N: usize>(arguments: &[OsString]) -> Result<[Channel; N], String> {
    let channels = inherited::<N>(arguments);
    let channels = channels.ok_or("it has no channel to the sidecar, which starts it; run `undercurrent` instead")?;
    Ok(channels.map(Channel::from))
}

fn supervise(arguments: &[OsString]) -> Result<(), String> {
    let [channel] = channels(arguments)?;
    supervisor::serve(channel)
}

fn load(arguments: &[OsString]) -> Result<(), String> {
    let [mut channel] = channels(arguments)?;
    let ((log, order), _) = channel.receive::<(Log, LoaderOrder)>().map_err(|error| chain(&error))?;
    log.start();
    loader::serve(channel, &order)
}

fn read(arguments: &[OsString]) -> Result<(), String> {
    let [mut files, foreign] = channels(arguments)?;
    let ((log, places), _) = files.receive::<(Log, Places)>().map_err(|error| chain(&error))?;
    log.start();
    Part::Reader.confine(&Reach::default()).map_err(|error| chain(&error))?;
    reader::serve(files, foreign, &places)
}

fn write(arguments: &[OsString]) -> Result<(), String> {
    let [mut channel] = channels(arguments)?;
    let ((log, outputs), _) = channel.receive::<(Log, Vec<PathBuf>)>().map_err(|error| chain(&error))?;
    log.start();
    let reach = Reach { outputs, ..Reach::default() };
    Part::Writer.confine(&reach).map_err(|error| chain(&error))?;
    reader::serve_outputs(channel, reach.outputs);
    Ok(())
}
