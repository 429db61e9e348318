//! What an administrator is told, and how often.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    ask, directory, hurried, pass,
    server::{Act, Folder, Server},
};
use crate::workloads::runtime::Unknown;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Logs this thread's warnings until the guard is dropped.
    fn warnings(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || log.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false);
        tracing::subscriber::set_default(subscriber.finish())
    }

    fn text(&self, folder: &Folder) -> String {
        let text = String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).into_owned();
        text.replace(&folder.at("").display().to_string(), "/run/")
    }
}

#[tokio::test]
async fn each_source_is_complained_about_once_for_each_reason() {
    let (log, folder) = (Log::default(), Folder::new());
    let warnings = log.warnings();
    let acts = [
        Act::json(200, "nonsense"),
        Act::close(),
        Act::json(500, "{\"message\":\"out of\\nmemory\"}"),
        Act::json(403, "{\"message\":\"not you\"}"),
        Act::json(200, "nonsense"),
        Act::close(),
        Act::hang(),
    ];
    let (docker, missing) = (folder.at("docker.sock"), folder.at("containerd.sock"));
    let server = Server::listen(&docker, acts);
    let mut directory = directory([docker, missing]);
    let id = "a".repeat(64);
    for _ in 0..8 {
        assert!(matches!(hurried(ask(&mut directory, &id, None)).await, Err(Unknown::NoAnswer(_))));
        pass(Duration::from_secs(60)).await;
    }
    drop(server);
    assert!(matches!(hurried(ask(&mut directory, &id, None)).await, Err(Unknown::NoAnswer(_))));
    drop(warnings);
    insta::assert_snapshot!(log.text(&folder), @r#"
    WARN /run/containerd.sock is no socket, or not to be seen from here: check `workloads.sockets`, and in a container that it is mounted; it is looked for again
    WARN cannot ask /run/docker.sock for containers' names (malformed: Failed to deserialize JSON: expected ident at line 1 column 2): is it a container runtime of that kind? It is asked again; `workloads.sockets` names whom to ask api="docker"
    WARN cannot ask /run/docker.sock for containers' names (closed: connection closed before message completed): it stopped, or had more to say than 1 MiB; it is asked again api="docker"
    WARN cannot ask /run/docker.sock for containers' names (refused: Docker responded with status code 500: out of memory): the runtime's own log says more; it is asked again api="docker"
    WARN cannot ask /run/docker.sock for containers' names (denied: Docker responded with status code 403: not you): run undercurrent as root, or in the group that owns the socket, such as `docker` api="docker"
    WARN cannot ask /run/docker.sock for containers' names (timeout: no answer within 2 s): the runtime hangs or is overloaded; it is asked again api="docker"
    WARN cannot ask /run/docker.sock for containers' names (gone: Connection refused (os error 111)): is the runtime running? It is asked again api="docker"
    "#);
}
