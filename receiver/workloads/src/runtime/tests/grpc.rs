//! CRI and containerd's own API.

use std::{collections::HashMap, convert::Infallible, path::Path, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, body::Bytes, body::Incoming, header::CONTENT_TYPE, server::conn::http2, service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::UnixListener, sync::mpsc, task::JoinHandle};
use tonic::Code;

use super::{
    super::{Directory, Reason, Unknown, containerd::messages as containerd, cri::messages as cri},
    ask, directory, hurried, lookup, map, pass,
    server::{Act, Event, Folder, Server},
};
use crate::{Metadata, PodMetadata, Runtime};

macro_rules! recorded {
    ($name:literal) => {
        include_bytes!(concat!("../../../../tests/fixtures/runtimes/containerd-1.6-", $name, ".bin"))
    };
}

/// A recorded reply of containerd 1.6, encoded by the generated code of the API.
const CONTAINERS: &[u8] = recorded!("ListContainers");
const STATUS: &[u8] = recorded!("ContainerStatus");
const PODS: &[u8] = recorded!("ListPodSandbox");
const NAMESPACES: &[u8] = recorded!("ListNamespaces");
const CONTAINER: &[u8] = recorded!("GetContainer");

const ID: &str = "b0c26fd8ab3b1c1fc3f5db3acb8b5c9d0785cd2765073d5a229aaf368c4d35fe";
const SANDBOX: &str = "efaec2cfc2e54f923fd8b1cd2561ebbc05745cfb52feba6d244f4b164b6b2c0a";
const NERDCTL: &str = "7d1f00000000000000000000000000000000000000000000000000000000aaaa";

/// A call as it arrived.
struct Call {
    method: String,
    namespace: Option<String>,
    message: Bytes,
}

impl Call {
    /// The id that a list is filtered by.
    fn filter(&self) -> String {
        let request = cri::ListRequest::decode(self.message.clone()).expect("a list's request");
        request.filter.unwrap_or_default().id
    }
}

enum Reply {
    Message(Vec<u8>),
    /// The bytes of a reply's body, with correct or faulty framing.
    Raw(Vec<u8>),
    Status(Code),
    Hang,
}

type LookupResult = Arc<dyn Fn(&Call) -> Reply + Send + Sync>;

/// A gRPC server that answers as a function says.
struct Runtimes {
    calls: mpsc::UnboundedReceiver<String>,
    accepting: JoinHandle<()>,
}

impl Runtimes {
    fn listen(socket: &Path, answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(socket).expect("bound");
        let (sender, calls) = mpsc::unbounded_channel();
        let answer: LookupResult = Arc::new(answer);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (sender, answer) = (sender.clone(), Arc::clone(&answer));
                let service = service_fn(move |request| serve(request, sender.clone(), Arc::clone(&answer)));
                tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { calls, accepting }
    }
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    request: Request<Incoming>,
    calls: mpsc::UnboundedSender<String>,
    answer: LookupResult,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let method = request.uri().path().to_owned();
    let namespace =
        request.headers().get(containerd::NAMESPACE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut message = request.into_body().collect().await.expect("a request").to_bytes();
    let _ = calls.send(method.clone());
    let message = message.split_off(5);
    let (code, body) = match answer(&Call { method, namespace, message }) {
        Reply::Message(message) => (Code::Ok, frame(message.len(), &message)),
        Reply::Raw(body) => (Code::Ok, body),
        Reply::Status(code) => (code, Vec::new()),
        Reply::Hang => std::future::pending().await,
    };
    let response = Response::builder().header(CONTENT_TYPE, "application/grpc").header("grpc-status", code as i32);
    Ok(response.body(Full::new(Bytes::from(body))).expect("a response"))
}

/// A message of gRPC: not compressed, its length, its bytes.
fn frame(length: usize, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).expect("short").to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// containerd, as it was recorded.
fn recorded(call: &Call) -> Reply {
    let listed =
        |id: &str, message: &[u8]| Reply::Message(if call.filter() == id { message.to_vec() } else { Vec::new() });
    match call.method.as_str() {
        cri::LIST_CONTAINERS => listed(ID, CONTAINERS),
        cri::LIST_PODS => listed(SANDBOX, PODS),
        cri::CONTAINER_STATUS => Reply::Message(STATUS.to_vec()),
        containerd::LIST_NAMESPACES => Reply::Message(NAMESPACES.to_vec()),
        containerd::GET_CONTAINER => {
            let request = containerd::GetContainerRequest::decode(call.message.clone()).expect("a request");
            match (call.namespace.as_deref(), request.id.as_str()) {
                (Some("default"), NERDCTL) => Reply::Message(CONTAINER.to_vec()),
                _ => Reply::Status(Code::NotFound),
            }
        }
        _ => Reply::Status(Code::Unimplemented),
    }
}

/// A directory that asks one server, which answers as a function says.
fn answering(name: &str, answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> (Runtimes, Directory, Folder) {
    let folder = Folder::new();
    let socket = folder.at(name);
    (Runtimes::listen(&socket, answer), directory([socket]), folder)
}

async fn no_answer(answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Reason {
    let (_runtimes, mut directory, _folder) = answering("crio.sock", answer);
    match hurried(ask(&mut directory, ID, None)).await {
        Err(Unknown::NoAnswer(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn pod() -> PodMetadata {
    PodMetadata {
        uid: Some("3ac9b2f1-6a52-4f0b-9f5e-0f6c1f2d7a10".to_owned()),
        name: Some("web-0".to_owned()),
        namespace: Some("shop".to_owned()),
        container: None,
        labels: map(&[("app.kubernetes.io/name", "web")]),
        annotations: map(&[("resource.opentelemetry.io/service.name", "shop-web")]),
    }
}

fn of_container() -> Metadata {
    Metadata {
        name: Some("nginx".to_owned()),
        image_name: Some("registry.example:5000/shop/web".to_owned()),
        image_tags: vec!["1.27".to_owned()],
        labels: map(&[]),
        pod: Some(PodMetadata { container: Some("nginx".to_owned()), ..pod() }),
    }
}

#[tokio::test]
async fn cri_names_a_container_and_its_pod() {
    let (mut runtimes, mut directory, _folder) = answering("containerd.sock", recorded);
    assert_eq!(ask(&mut directory, ID, Some(Runtime::Containerd)).await, Ok(of_container()));
    let calls: Vec<_> = std::iter::from_fn(|| runtimes.calls.try_recv().ok()).collect();
    assert_eq!(calls, [cri::LIST_CONTAINERS, cri::CONTAINER_STATUS, cri::LIST_PODS]);
}

#[tokio::test]
async fn cri_names_the_pod_of_a_sandbox() {
    let (_runtimes, mut directory, _folder) = answering("containerd.sock", recorded);
    let expected = Metadata { pod: Some(pod()), ..Metadata::default() };
    assert_eq!(ask(&mut directory, SANDBOX, None).await, Ok(expected));
}

#[tokio::test]
async fn what_the_manifest_calls_the_image_comes_first() {
    let (mut runtimes, mut directory, _folder) = answering("crio.sock", |call| {
        if call.method != cri::LIST_CONTAINERS {
            return recorded(call);
        }
        let mut answer = cri::ListContainersResponse::decode(CONTAINERS).expect("an answer");
        let image = answer.containers[0].image.get_or_insert_default();
        image.user_specified_image = "nginx:stable".to_owned();
        Reply::Message(answer.encode_to_vec())
    });
    let expected =
        Metadata { image_name: Some("nginx".to_owned()), image_tags: vec!["stable".to_owned()], ..of_container() };
    assert_eq!(ask(&mut directory, ID, Some(Runtime::Crio)).await, Ok(expected));
    let calls: Vec<_> = std::iter::from_fn(|| runtimes.calls.try_recv().ok()).collect();
    assert_eq!(calls, [cri::LIST_CONTAINERS, cri::LIST_PODS]);
}

#[tokio::test]
async fn a_pod_that_is_gone_is_known_by_its_containers_labels() {
    let (_runtimes, mut directory, _folder) = answering("crio.sock", |call| match call.method.as_str() {
        cri::LIST_PODS => Reply::Message(Vec::new()),
        _ => recorded(call),
    });
    let place = PodMetadata { container: Some("nginx".to_owned()), ..pod() };
    let place = PodMetadata { labels: map(&[]), annotations: map(&[]), ..place };
    assert_eq!(ask(&mut directory, ID, None).await, Ok(Metadata { pod: Some(place), ..of_container() }));
}

#[tokio::test]
async fn containerd_names_what_cri_does_not_know() {
    for without_cri in [false, true] {
        let (_runtimes, mut directory, _folder) = answering("containerd.sock", move |call| {
            if without_cri && call.method.starts_with("/runtime.v1") {
                return Reply::Status(Code::Unimplemented);
            }
            recorded(call)
        });
        let metadata = ask(&mut directory, NERDCTL, Some(Runtime::Containerd)).await.expect("known");
        assert_eq!(metadata.name.as_deref(), Some("front"));
        assert_eq!(metadata.image_name.as_deref(), Some("registry.example:5000/shop/web"));
        assert_eq!(metadata.image_tags, ["1.27"]);
        assert_eq!(metadata.labels, map(&[]), "labels without a use");
        let reason = if without_cri { "unsupported" } else { "not_found" };
        assert_eq!(directory.statistics().failures, [(("cri", reason), 1)].into());
    }
}

#[tokio::test]
async fn dockers_namespace_is_left_to_docker() {
    let (mut runtimes, mut directory, _folder) = answering("containerd.sock", |call| match call.method.as_str() {
        containerd::LIST_NAMESPACES => {
            let namespaces = vec![containerd::Namespace { name: "moby".to_owned() }];
            Reply::Message(containerd::ListNamespacesResponse { namespaces }.encode_to_vec())
        }
        containerd::GET_CONTAINER => Reply::Message(CONTAINER.to_vec()),
        _ => Reply::Message(Vec::new()),
    });
    assert_eq!(hurried(ask(&mut directory, NERDCTL, None)).await, Err(Unknown::NotFound));
    let calls: Vec<_> = std::iter::from_fn(|| runtimes.calls.try_recv().ok()).collect();
    assert!(!calls.contains(&containerd::GET_CONTAINER.to_owned()));
}

#[tokio::test]
async fn a_container_is_asked_for_again_until_cri_knows_it() {
    let asked = std::sync::Mutex::new(HashMap::<String, u32>::new());
    let (_runtimes, mut directory, _folder) = answering("crio.sock", move |call| {
        let mut asked = asked.lock().expect("not poisoned");
        let times = asked.entry(call.method.clone()).or_default();
        *times += 1;
        if call.method == cri::LIST_CONTAINERS && *times <= 2 { Reply::Message(Vec::new()) } else { recorded(call) }
    });
    assert_eq!(ask(&mut directory, ID, None).await, Ok(of_container()));
    assert_eq!(directory.statistics().failures[&("cri", "not_found")], 2);
}

#[tokio::test]
async fn a_runtime_that_hangs_holds_nothing_up() {
    let (mut runtimes, mut directory, _folder) = answering("crio.sock", |_| Reply::Hang);
    assert!(directory.submit(lookup(ID, None)));
    runtimes.calls.recv().await.expect("a call");
    let answer = hurried(directory.next_result()).await;
    assert_eq!(answer.outcome, Err(Unknown::NoAnswer(Reason::Timeout)));
}

#[tokio::test]
async fn answers_about_others_are_no_answers() {
    for method in [cri::LIST_CONTAINERS, cri::LIST_PODS, cri::CONTAINER_STATUS] {
        let reason = no_answer(move |call| {
            if call.method != method {
                return recorded(call);
            }
            let message = |message: &[u8]| {
                let id =
                    [ID.as_bytes(), SANDBOX.as_bytes()].into_iter().find(|id| message.windows(64).any(|at| at == *id));
                let at = message.windows(64).position(|at| Some(at) == id).expect("an id");
                let mut message = message.to_vec();
                message[at] ^= 1;
                message
            };
            Reply::Message(message(match method {
                cri::LIST_CONTAINERS => CONTAINERS,
                cri::LIST_PODS => PODS,
                _ => STATUS,
            }))
        });
        assert_eq!(reason.await, Reason::Malformed, "{method}");
    }
    let (_runtimes, mut directory, _folder) = answering("containerd.sock", |call| match call.method.as_str() {
        containerd::GET_CONTAINER => Reply::Message(CONTAINER.to_vec()),
        _ => recorded(call),
    });
    let outcome = hurried(ask(&mut directory, SANDBOX.replace('e', "f").as_str(), None)).await;
    assert_eq!(outcome, Err(Unknown::NoAnswer(Reason::Malformed)));
}

#[tokio::test]
async fn garbage_is_no_answer() {
    for body in [
        b"\xff garbage".to_vec(),
        frame(3, b"\xff\xff\xff"),
        frame(100, b"short"),
        frame(64 << 20, b"a long one is promised"),
        frame(2 << 20, &vec![0; 2 << 20]),
        Vec::new(),
    ] {
        let begin: Vec<u8> = body.iter().copied().take(20).collect();
        assert_eq!(no_answer(move |_| Reply::Raw(body.clone())).await, Reason::Malformed, "{begin:?}");
    }
}

#[tokio::test]
async fn errors_are_told_apart() {
    for (code, reason) in [
        (Code::PermissionDenied, Reason::Denied),
        (Code::Unavailable, Reason::Closed),
        (Code::ResourceExhausted, Reason::Refused),
    ] {
        assert_eq!(no_answer(move |_| Reply::Status(code)).await, reason, "{code:?}");
    }
}

#[tokio::test]
async fn what_speaks_no_grpc_is_no_answer() {
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
    for (act, expected) in [
        (Act::close(), Reason::Closed),
        (Act::SendAndHold(http), Reason::Malformed),
        (Act::hang(), Reason::Timeout),
        (Act::Flood(Vec::new(), vec![b'x'; 1 << 16]), Reason::Malformed),
    ] {
        let folder = Folder::new();
        let socket = folder.at("crio.sock");
        let mut server = Server::listen(&socket, [act.clone()]);
        let mut directory = directory([socket]);
        let outcome = hurried(ask(&mut directory, ID, None)).await;
        assert_eq!(outcome, Err(Unknown::NoAnswer(expected)), "{act:.30?}");
        assert_eq!(server.event().await, Event::Request("PRI * HTTP/2.0".to_owned()));
    }
}

#[tokio::test]
async fn a_runtime_that_appears_later_and_again_is_found() {
    let folder = Folder::new();
    let socket = folder.at("crio.sock");
    let mut directory = directory([socket.clone()]);
    assert_eq!(ask(&mut directory, ID, None).await, Err(Unknown::NobodyToAsk));
    for _ in 0..2 {
        let runtimes = Runtimes::listen(&socket, recorded);
        pass(Duration::from_secs(10)).await;
        assert_eq!(ask(&mut directory, ID, None).await, Ok(of_container()));
        drop(runtimes);
        std::fs::remove_file(&socket).expect("removed");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = cri::ListContainersResponse::decode(bytes.as_slice());
        let _ = cri::ListPodSandboxResponse::decode(bytes.as_slice());
        let _ = containerd::GetContainerResponse::decode(bytes.as_slice());
    }
}
