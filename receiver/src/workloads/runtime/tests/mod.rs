//! The directory against servers that answer, hang, lie and close. Answers were recorded from real runtimes.

mod docker;
mod grpc;
mod kubernetes;
mod server;

use std::{future::Future, path::PathBuf, time::Duration};

use super::{Answer, Directory, Unknown, sockets::Places, source::Source, sources::Sources};
use crate::workloads::{ContainerId, Metadata, Runtime};

/// A directory of these sockets.
fn directory(sockets: impl IntoIterator<Item = PathBuf>) -> Directory {
    with_kubernetes(sockets, None)
}

fn with_kubernetes(sockets: impl IntoIterator<Item = PathBuf>, kubernetes: Option<Source>) -> Directory {
    Directory::with(Sources::new(Places::Named(sockets.into_iter().collect()), kubernetes))
}

/// Asks, and waits for the answer.
async fn ask(directory: &mut Directory, id: &str, runtime: Option<Runtime>) -> Result<Metadata, Unknown> {
    assert!(directory.ask(ContainerId(id.to_owned()), runtime));
    let Answer { container, outcome } = directory.answer().await;
    assert_eq!(container.0, id);
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
