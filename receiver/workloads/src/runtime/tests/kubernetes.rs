//! The Kubernetes API. Pods as its reference describes them.

use std::sync::Arc;

use kube::Config;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, rustls::pki_types::PrivatePkcs8KeyDer};

use super::{
    super::{
        Directory, Reason, Unknown,
        kubernetes::{Access, Kubernetes},
        source::Source,
    },
    ask, hurried, map,
    server::{Act, Event, Folder, Server, play},
    with_kubernetes,
};
use crate::{Metadata, PodMetadata, Runtime};

/// An API server that plays one act for each connection, the last one again and again.
async fn serve(acts: Vec<Act>, tls: Option<ServerConfig>) -> (u16, mpsc::UnboundedReceiver<Event>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let (sender, events) = mpsc::unbounded_channel();
    let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    tokio::spawn(async move {
        let mut acts = acts.into_iter().peekable();
        while let Ok((stream, _)) = listener.accept().await {
            let act = acts.next().expect("an act");
            let again = acts.peek().is_none().then(|| act.clone());
            acts = acts.chain(again).collect::<Vec<_>>().into_iter().peekable();
            match tls.clone() {
                None => drop(tokio::spawn(play(stream, act, sender.clone()))),
                Some(tls) => {
                    let sender = sender.clone();
                    tokio::spawn(async move {
                        if let Ok(stream) = tls.accept(stream).await {
                            play(stream, act, sender).await;
                        }
                    });
                }
            }
        }
    });
    (port, events)
}

fn source(config: Config) -> Source {
    let access = Access { config, node: "worker-1".to_owned() };
    Source::kubernetes(Kubernetes::watch(access).expect("a client"))
}

/// A directory with one scripted API server.
async fn scripted(acts: impl IntoIterator<Item = Act>) -> (Directory, mpsc::UnboundedReceiver<Event>) {
    let (port, events) = serve(acts.into_iter().collect(), None).await;
    let config = Config::new(format!("http://127.0.0.1:{port}").parse().expect("an address"));
    (with_kubernetes([], Some(source(config))), events)
}

fn list(pods: &[Value]) -> Act {
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": pods});
    Act::json(200, &list.to_string())
}

/// A watch that says these things and goes on.
fn watch(events: &[(&str, &Value)]) -> Act {
    let mut answer =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for (kind, pod) in events {
        let line = format!("{}\n", json!({"type": kind, "object": pod}));
        answer.push_str(&format!("{:x}\r\n{line}\r\n", line.len()));
    }
    Act::SendAndHold(answer.into_bytes())
}

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A pod with one container in each place that has some.
fn pod(name: &str, containers: [char; 3]) -> Value {
    let status = |name: &str, digit: char| {
        json!({"name": name, "ready": true, "restartCount": 0, "started": true, "image": "sha256:0123",
            "imageID": "registry.example/shop/web@sha256:89ab", "containerID": format!("containerd://{}", id(digit)),
            "lastState": {}, "state": {"running": {"startedAt": "2026-11-21T12:00:00Z"}}})
    };
    let spec = |name: &str, image: &str| json!({"name": name, "image": image, "resources": {}, "env": [{"name": "A"}]});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": "3ac9b2f1-6a52-4f0b-9f5e-0f6c1f2d7a10", "resourceVersion": "5",
            "creationTimestamp": "2026-11-21T12:00:00Z", "labels": {"app.kubernetes.io/name": "web"},
            "annotations": {"resource.opentelemetry.io/service.name": "shop-web", "long": "x".repeat(5000)},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "nodeName": "worker-1", "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [spec("web", "registry.example:5000/shop/web:1.27")],
            "initContainers": [spec("init", "busybox:1.36")],
            "ephemeralContainers": [spec("debugger", "busybox@sha256:89ab")],
        },
        "status": {
            "phase": "Running", "podIPs": [{"ip": "10.0.0.7"}], "containerStatuses": [status("web", containers[0])],
            "initContainerStatuses": [status("init", containers[1])],
            "ephemeralContainerStatuses": [status("debugger", containers[2])],
        },
    })
}

fn expected(pod: &str, container: &str, image: &str, tags: &[&str]) -> Metadata {
    Metadata {
        name: Some(container.to_owned()),
        image_name: Some(image.to_owned()),
        image_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        labels: map(&[]),
        pod: Some(PodMetadata {
            uid: Some("3ac9b2f1-6a52-4f0b-9f5e-0f6c1f2d7a10".to_owned()),
            name: Some(pod.to_owned()),
            namespace: Some("shop".to_owned()),
            container: Some(container.to_owned()),
            labels: map(&[("app.kubernetes.io/name", "web")]),
            annotations: map(&[("resource.opentelemetry.io/service.name", "shop-web")]),
        }),
    }
}

#[tokio::test]
async fn pods_of_this_node_are_known_by_their_containers() {
    let (mut directory, mut events) = scripted([list(&[pod("web-0", ['a', 'b', 'c'])]), watch(&[])]).await;
    let web = expected("web-0", "web", "registry.example:5000/shop/web", &["1.27"]);
    assert_eq!(ask(&mut directory, &id('a'), Some(Runtime::Containerd)).await, Ok(web));
    assert_eq!(ask(&mut directory, &id('b'), None).await, Ok(expected("web-0", "init", "busybox", &["1.36"])));
    assert_eq!(
        ask(&mut directory, &id('c'), Some(Runtime::Crio)).await,
        Ok(expected("web-0", "debugger", "busybox", &[]))
    );
    let Some(Event::Request(line)) = events.recv().await else { panic!("no request") };
    assert!(line.starts_with("GET /api/v1/pods?") && line.contains("fieldSelector=spec.nodeName%3Dworker-1"), "{line}");
    assert_eq!(directory.statistics().left_out, 0, "an annotation without a use is no loss");
    // A runtime that has nothing to do with Kubernetes is not looked up there.
    assert_eq!(ask(&mut directory, &id('a'), Some(Runtime::Podman)).await, Err(Unknown::NobodyToAsk));
}

#[tokio::test]
async fn pods_are_followed() {
    let (before, after, gone) =
        (pod("web-0", ['a', 'b', 'c']), pod("web-0", ['d', 'b', 'c']), pod("web-1", ['e', 'f', '0']));
    let changes = watch(&[("MODIFIED", &after), ("DELETED", &gone), ("ADDED", &pod("web-2", ['1', '2', '3']))]);
    let (mut directory, _events) = scripted([list(&[before, gone]), changes]).await;
    let web = |pod| Ok(expected(pod, "web", "registry.example:5000/shop/web", &["1.27"]));
    assert_eq!(ask(&mut directory, &id('1'), None).await, web("web-2"));
    assert_eq!(ask(&mut directory, &id('d'), None).await, web("web-0"));
    for digit in ['a', 'e', '9'] {
        assert_eq!(hurried(ask(&mut directory, &id(digit), None)).await, Err(Unknown::NotFound), "{digit}");
    }
}

/// A page of a list that another page follows.
fn page(pods: &[Value]) -> Act {
    let metadata = json!({"resourceVersion": "7", "continue": "more"});
    Act::json(200, &json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": pods}).to_string())
}

#[tokio::test]
async fn a_list_without_an_end_fills_no_memory_and_is_named() {
    let pods: Vec<Value> = (0..50).map(|n| pod(&format!("web-{n}"), ['a', 'b', 'c'])).collect();
    let (mut directory, mut events) = scripted([page(&pods)]).await;
    assert_eq!(hurried(ask(&mut directory, &id('d'), None)).await, Err(Unknown::NoAnswer(Reason::Malformed)));
    let mut pages = 0;
    while events.try_recv().is_ok() {
        pages += 1;
    }
    // A request may be under way.
    assert!((82..=84).contains(&pages), "{pages}");
}

#[tokio::test]
async fn replies_beyond_the_limits_are_named() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
    let endless = Act::Flood(format!("{head}{{\"items\": [\"").into_bytes(), vec![b'x'; 1 << 16]);
    let (depth, list) = (100_000, r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [{"spec": "#);
    let deep = Act::json(200, &[list, &"[".repeat(depth), &"]".repeat(depth), "}]}"].concat());
    for act in [endless, deep] {
        let (mut directory, _events) = scripted([act]).await;
        let outcome = hurried(ask(&mut directory, &id('a'), None)).await;
        assert_eq!(outcome, Err(Unknown::NoAnswer(Reason::Malformed)));
    }
}

#[tokio::test]
async fn texts_of_a_pod_that_are_too_long_are_left_out() {
    let (long, mut other) = (pod(&"x".repeat(2000), ['a', 'b', 'c']), pod("web-0", ['d', 'e', 'f']));
    other["status"]["containerStatuses"][0]["containerID"] = json!(format!("containerd://{}", "7".repeat(2000)));
    let (mut directory, _events) = scripted([list(&[long, other]), watch(&[])]).await;
    assert_eq!(hurried(ask(&mut directory, &id('a'), None)).await, Err(Unknown::NotFound));
    assert_eq!(hurried(ask(&mut directory, &"7".repeat(2000), None)).await, Err(Unknown::NotFound));
    assert!(ask(&mut directory, &id('e'), None).await.is_ok());
}

#[tokio::test]
async fn the_runtime_is_asked_before_kubernetes() {
    let folder = Folder::new();
    let mut runtime = Server::listen(&folder.at("docker.sock"), [Act::json(404, "{}")]);
    let (port, _events) = serve(vec![list(&[pod("web-0", ['a', 'b', 'c'])]), watch(&[])], None).await;
    let config = Config::new(format!("http://127.0.0.1:{port}").parse().expect("an address"));
    let mut directory = with_kubernetes([folder.at("docker.sock")], Some(source(config)));
    assert!(ask(&mut directory, &id('a'), Some(Runtime::Docker)).await.is_ok());
    assert_eq!(runtime.request().await, format!("GET /containers/{}/json HTTP/1.1", id('a')));
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_is_named() {
    let refusal = |code: u16| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code});
        Act::json(code, &status.to_string())
    };
    for (act, reason) in [
        (refusal(403), Reason::Denied),
        (refusal(401), Reason::Denied),
        (refusal(410), Reason::Refused),
        (Act::json(404, "nothing here"), Reason::Refused),
        (Act::json(200, "{\"items\": 7}"), Reason::Malformed),
        (Act::json(200, "[\u{0}"), Reason::Malformed),
        (Act::close(), Reason::Closed),
        (Act::Send(b"\x00\xff garbage\r\n\r\n".to_vec()), Reason::Closed),
        (Act::hang(), Reason::Timeout),
    ] {
        let (mut directory, _events) = scripted([act.clone()]).await;
        let outcome = hurried(ask(&mut directory, &id('a'), None)).await;
        assert_eq!(outcome, Err(Unknown::NoAnswer(reason)), "{act:?}");
    }
}

/// Lists pods over TLS. One of two authorities signed the certificate of the server.
async fn over_tls(trusted: bool) -> Result<Metadata, Unknown> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certified = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name").self_signed(&key);
    let (certified, other) = (certified.expect("signed"), rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]));
    let folder = Folder::new();
    let pem = if trusted { certified.pem() } else { other.expect("signed").cert.pem() };
    std::fs::write(folder.at("ca.crt"), pem).expect("written");
    std::fs::write(folder.at("token"), "a token").expect("written");
    let tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certified.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into());
    let (port, _events) = serve(vec![list(&[pod("web-0", ['a', 'b', 'c'])]), watch(&[])], tls.ok()).await;
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().expect("an address"));
    config.root_cert_file = Some(folder.at("ca.crt"));
    config.auth_info.token_file = Some(folder.at("token").to_string_lossy().into_owned());
    let mut directory = with_kubernetes([], Some(source(config)));
    hurried(ask(&mut directory, &id('a'), None)).await
}

#[tokio::test]
async fn the_api_server_must_have_a_certificate_of_the_clusters_authority() {
    assert!(over_tls(true).await.is_ok());
    assert!(matches!(over_tls(false).await, Err(Unknown::NoAnswer(_))));
}
