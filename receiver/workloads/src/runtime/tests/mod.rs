//! The directory against servers that answer, hang, lie and close. Answers were recorded from real runtimes.

mod docker;
mod grpc;
mod kubernetes;
mod server;
mod trust;

use std::{future::Future, path::PathBuf, time::Duration};

use super::{Directory, Lookup, LookupResult, Runtimes, Unknown, source::Source, sources::Sources};
use crate::{ContainerId, Metadata, Runtime, reader::SocketPaths};

/// A directory of these sockets.
fn directory(sockets: impl IntoIterator<Item = PathBuf>) -> Directory {
    with_kubernetes(sockets, None)
}

fn with_kubernetes(sockets: impl IntoIterator<Item = PathBuf>, kubernetes: Option<Source>) -> Directory {
    Directory::with(Sources::new(Runtimes::local(SocketPaths::Named(sockets.into_iter().collect())), kubernetes))
}

/// A lookup about a container that is in no user's subtree.
fn lookup(id: &str, runtime: Option<Runtime>) -> Lookup {
    Lookup { container: ContainerId(id.to_owned()), runtime, pod: None, user: None }
}

/// Asks, and waits for the answer.
async fn ask(directory: &mut Directory, id: &str, runtime: Option<Runtime>) -> Result<Metadata, Unknown> {
    answer(directory, lookup(id, runtime)).await
}

async fn answer(directory: &mut Directory, asked: Lookup) -> Result<Metadata, Unknown> {
    assert!(directory.submit(asked.clone()));
    let LookupResult { lookup, outcome } = directory.next_result().await;
    assert_eq!(lookup, asked);
    outcome
}

/// Lets time that nothing happens in pass at once.
async fn hurried<T>(future: impl Future<Output = T>) -> T {
    tokio::time::pause();
    let result = future.await;
    tokio::time::resume();
    result
}

/// Lets this much time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn map(entries: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
