//! Docker's API.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    sync::atomic::Ordering,
    time::Duration,
};

use super::{
    super::{Directory, Reason, Unknown},
    ask, directory, hurried, lookup, map, pass,
    server::{Act, Event, Folder, Server},
};
use crate::{Metadata, Runtime};

const DOCKER: &str = include_str!("../../../../tests/fixtures/runtimes/docker-20.10.json");
const PODMAN: &str = include_str!("../../../../tests/fixtures/runtimes/podman-4.3.json");
const DOCKER_ID: &str = "8fe05114accf28f8afcec364abdabdfa07dcbd065a3709a6376ce26afab767c0";
const PODMAN_ID: &str = "db0493ee04b33a3ae231cc5d232340e1059db8047224c50b3f62dc34b5e60768";

fn unknown() -> Act {
    Act::json(404, r#"{"message":"No such container"}"#)
}

/// A directory that asks one server, which plays these acts.
fn scripted(acts: impl IntoIterator<Item = Act>) -> (Server, Directory, Folder) {
    let folder = Folder::new();
    let socket = folder.at("docker.sock");
    (Server::listen(&socket, acts), directory([socket]), folder)
}

async fn no_answer(act: Act) -> Reason {
    let (_server, mut directory, _folder) = scripted([act]);
    match hurried(ask(&mut directory, DOCKER_ID, None)).await {
        Err(Unknown::NoAnswer(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn of_docker() -> Metadata {
    Metadata {
        name: Some("shop-web".to_owned()),
        image_name: Some("registry.example:5000/shop/web".to_owned()),
        image_tags: vec!["1.27".to_owned()],
        labels: map(&[("com.docker.compose.service", "web")]),
        pod: None,
    }
}

#[tokio::test]
async fn docker_names_a_container() {
    let (mut server, mut directory, _folder) = scripted([Act::json(200, DOCKER)]);
    assert_eq!(ask(&mut directory, DOCKER_ID, Some(Runtime::Docker)).await, Ok(of_docker()));
    // Without a version every engine takes it; old ones refuse a newer version than theirs.
    assert_eq!(server.request().await, format!("GET /containers/{DOCKER_ID}/json HTTP/1.1"));
    let statistics = directory.statistics();
    assert_eq!((statistics.questions, statistics.known, statistics.failures.len()), (1, 1, 0));
}

#[tokio::test]
async fn podman_names_a_container() {
    let (_server, mut directory, _folder) = scripted([Act::json(200, PODMAN)]);
    let metadata = ask(&mut directory, PODMAN_ID, Some(Runtime::Podman)).await.expect("known");
    assert_eq!(metadata.name.as_deref(), Some("shop-api"));
    assert_eq!(metadata.image_name.as_deref(), Some("localhost/shop/api"));
    assert_eq!(metadata.image_tags, ["2.0"]);
}

#[tokio::test]
async fn an_image_that_was_started_by_its_id_has_no_name() {
    let id = "7236a140ddd58d72b2ccc3c157de600711f774fbdf2e0c34aed88495f4a146be";
    for written in [format!("sha256:{id}"), id.to_owned(), id[..12].to_owned()] {
        let answer = DOCKER.replace("\"registry.example:5000/shop/web:1.27\"", &format!("\"{written}\""));
        let (_server, mut directory, _folder) = scripted([Act::json(200, &answer)]);
        let expected = Metadata { image_name: None, image_tags: Vec::new(), ..of_docker() };
        assert_eq!(ask(&mut directory, DOCKER_ID, None).await, Ok(expected), "{written}");
    }
}

#[tokio::test]
async fn a_container_is_asked_for_again_until_the_runtime_knows_it() {
    let (_server, mut directory, _folder) = scripted([unknown(), unknown(), Act::json(200, DOCKER)]);
    assert_eq!(ask(&mut directory, DOCKER_ID, None).await, Ok(of_docker()));
    assert_eq!(directory.statistics().failures[&("docker", "not_found")], 2);
}

#[tokio::test]
async fn a_container_that_stays_unknown_is_said_to_be() {
    let (_server, mut directory, _folder) = scripted([unknown()]);
    let asked = tokio::time::Instant::now();
    assert_eq!(hurried(ask(&mut directory, DOCKER_ID, None)).await, Err(Unknown::NotFound));
    assert_eq!(asked.elapsed().as_millis() / 50, 1250 / 50);
    let statistics = directory.statistics();
    assert_eq!((statistics.unknown["not_found"], statistics.failures[&("docker", "not_found")]), (1, 4));
}

#[tokio::test]
async fn a_runtime_that_hangs_holds_nothing_up() {
    let (mut server, mut directory, _folder) = scripted([Act::hang()]);
    assert!(directory.submit(lookup(DOCKER_ID, None)));
    server.request().await;
    let answer = hurried(directory.next_result()).await;
    assert_eq!(answer.outcome, Err(Unknown::NoAnswer(Reason::Timeout)));
    assert_eq!(server.event().await, Event::Closed(0));
    // It is left alone for a while: no further lookup waits for it.
    assert_eq!(directory.statistics().failures[&("docker", "timeout")], 2);
}

#[tokio::test]
async fn no_more_than_four_calls_are_under_way() {
    let (mut server, mut directory, _folder) = scripted([Act::hang()]);
    for number in 0..20 {
        assert!(directory.submit(lookup(&format!("{number:064}"), None)));
    }
    for _ in 0..4 {
        server.request().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.most.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn questions_beyond_the_limit_wait_and_then_are_refused_and_counted() {
    const OPEN: u64 = 1024;
    const WAITING: u64 = 4096;
    let (mut server, mut directory, _folder) = scripted([Act::hang()]);
    for _ in 0..OPEN + WAITING {
        assert!(directory.submit(lookup(DOCKER_ID, None)));
    }
    assert!(!directory.submit(lookup(DOCKER_ID, None)));
    let counts = |directory: &Directory| (directory.statistics().questions, directory.statistics().queue_full);
    assert_eq!(counts(&directory), (OPEN, 1));
    server.request().await;
    hurried(directory.next_result()).await;
    // The answer made room for a lookup that waited, and this one takes its place.
    assert_eq!(counts(&directory), (OPEN + 1, 1));
    assert!(directory.submit(lookup(DOCKER_ID, None)));
    assert!(!directory.submit(lookup(DOCKER_ID, None)));
    assert_eq!(counts(&directory), (OPEN + 1, 2));
}

#[tokio::test]
async fn a_connection_that_ends_early_is_no_answer() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec();
    for act in [Act::close(), Act::Send(b"HTTP/1.1 2".to_vec()), Act::Send(head)] {
        assert_eq!(no_answer(act.clone()).await, Reason::Closed, "{act:?}");
    }
}

#[tokio::test]
async fn garbage_is_no_answer() {
    let wrong_type = DOCKER.replace("\"/shop-web\"", "{}");
    let other_id = DOCKER.replace(DOCKER_ID, PODMAN_ID);
    let deep = format!("{{\"Config\":{}", "[".repeat(100_000));
    for act in [
        Act::Send(b"\x00\xff\xfe garbage \r\n\r\n".to_vec()),
        Act::Send(b"HTTP/1.1 999999 \r\n\r\n".to_vec()),
        Act::Send(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec()),
        Act::json(200, ""),
        Act::json(200, "{}"),
        Act::json(200, "null"),
        Act::json(200, "\u{fffd}\u{0}"),
        Act::json(200, &deep),
        Act::json(200, &wrong_type),
        Act::json(200, &other_id),
    ] {
        assert_eq!(no_answer(act.clone()).await, Reason::Malformed, "{act:?}");
    }
}

#[tokio::test]
async fn one_bad_answer_does_not_silence_a_runtime() {
    for bad in [Act::json(200, "nonsense"), Act::json(500, "{}"), Act::close()] {
        let (_server, mut directory, _folder) = scripted([bad, Act::json(200, DOCKER)]);
        let asked = tokio::time::Instant::now();
        assert_eq!(hurried(ask(&mut directory, DOCKER_ID, None)).await, Ok(of_docker()));
        assert!(asked.elapsed() < Duration::from_secs(1));
    }
}

#[tokio::test]
async fn errors_are_told_apart() {
    for (status, reason) in [(500, Reason::Refused), (403, Reason::Denied), (301, Reason::Refused)] {
        assert_eq!(no_answer(Act::json(status, "{\"message\":\"no\"}")).await, reason, "{status}");
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    const BUFFERS: usize = 1 << 20;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000)).into_bytes();
    for (first, reason) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Reason::Closed),
        ("HTTP/1.1 200 OK\r\n\r\n", Reason::Malformed),
        ("HTTP/1.1 200 OK\r\nX-Endless: ", Reason::Malformed),
    ] {
        let (mut server, mut directory, _folder) = scripted([Act::Flood(first.as_bytes().to_vec(), chunk.clone())]);
        assert_eq!(hurried(ask(&mut directory, DOCKER_ID, None)).await, Err(Unknown::NoAnswer(reason)), "{first}");
        server.request().await;
        let Event::Closed(sent) = server.event().await else { panic!("another request") };
        assert!(sent < (1 << 20) + BUFFERS, "{sent} bytes were taken after {first}");
    }
}

#[tokio::test]
async fn a_runtime_that_appears_later_is_found() {
    let folder = Folder::new();
    let socket = folder.at("docker.sock");
    let mut directory = directory([socket.clone()]);
    assert_eq!(ask(&mut directory, DOCKER_ID, None).await, Err(Unknown::NobodyToAsk));
    let _server = Server::listen(&socket, [Act::json(200, DOCKER)]);
    assert_eq!(ask(&mut directory, DOCKER_ID, None).await, Err(Unknown::NobodyToAsk), "looked for too often");
    pass(Duration::from_secs(10)).await;
    assert_eq!(ask(&mut directory, DOCKER_ID, None).await, Ok(of_docker()));
    assert_eq!(directory.statistics().unknown["nobody_to_ask"], 2);
}

#[tokio::test]
async fn a_runtime_that_comes_back_is_asked_again() {
    let folder = Folder::new();
    let socket = folder.at("docker.sock");
    drop(UnixListener::bind(&socket).expect("bound"));
    let mut directory = directory([socket.clone()]);
    let outcome = hurried(ask(&mut directory, DOCKER_ID, None)).await;
    assert_eq!(outcome, Err(Unknown::NoAnswer(Reason::Gone)));
    fs::remove_file(&socket).expect("removed");
    let _server = Server::listen(&socket, [Act::json(200, DOCKER)]);
    pass(Duration::from_secs(4)).await;
    assert_eq!(ask(&mut directory, DOCKER_ID, None).await, Ok(of_docker()));
}

#[test]
fn a_socket_that_may_not_be_used_is_named() {
    // Capabilities are each thread's own: this one reads like anybody else, even as root.
    let asking = std::thread::spawn(|| {
        caps::clear(None, caps::CapSet::Effective).expect("capabilities dropped");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let (_server, mut directory, folder) = scripted([Act::json(200, DOCKER)]);
            fs::set_permissions(folder.at("docker.sock"), fs::Permissions::from_mode(0o000)).expect("closed");
            ask(&mut directory, DOCKER_ID, None).await
        })
    });
    assert_eq!(asking.join().expect("no panic"), Err(Unknown::NoAnswer(Reason::Denied)));
}

#[tokio::test]
async fn ids_that_no_runtime_makes_are_not_asked_for() {
    let (mut server, mut directory, _folder) = scripted([Act::json(200, DOCKER)]);
    for id in ["", "..", "../../info", "a/b", "a?b", "-a", "ä", "a b", &"a".repeat(129)] {
        assert_eq!(ask(&mut directory, id, None).await, Err(Unknown::NotFound), "{id}");
    }
    for runtime in [Runtime::Lxc, Runtime::Nspawn] {
        assert_eq!(ask(&mut directory, DOCKER_ID, Some(runtime)).await, Err(Unknown::NobodyToAsk));
    }
    assert!(server.events.try_recv().is_err());
}

#[tokio::test]
async fn long_labels_are_left_out_and_counted() {
    let answer = DOCKER.replace(
        "\"com.docker.compose.service\": \"web\"",
        &format!("\"com.docker.compose.service\": \"{}\"", "x".repeat(2000)),
    );
    let (_server, mut directory, _folder) = scripted([Act::json(200, &answer)]);
    assert_eq!(ask(&mut directory, DOCKER_ID, None).await, Ok(Metadata { labels: map(&[]), ..of_docker() }));
    assert_eq!(directory.statistics().left_out, 1);
}
