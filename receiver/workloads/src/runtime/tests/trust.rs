//! Sockets of hostile local users.

use std::{
    fs,
    os::unix::{
        fs::{chown, lchown, symlink},
        net::UnixListener as StdListener,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    process::Uid as RawUid,
    thread::{UnshareFlags, set_thread_res_uid, unshare_unsafe},
};
use tokio::net::UnixListener;

use super::{
    super::{Directory, Lookup, Reason, Runtimes, Unknown, sources::Sources},
    answer, hurried, lookup,
    server::{Act, Folder, Server},
};
use crate::{
    ContainerId, Metadata, Runtime, Uid,
    cgroup::testing::skip,
    reader::{Endpoint, Owner, Refusal, SocketPaths},
};

const USER: u32 = 1000;
const OTHER: u32 = 1001;
const ID: &str = "8fe05114accf28f8afcec364abdabdfa07dcbd065a3709a6376ce26afab767c0";

/// A root directory with the runtime directory of a user, and the directory of Podman in it.
struct Root(Folder);

impl Root {
    /// `None` without the right to give files away.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("sockets of other users: only root may give files away");
            return None;
        }
        let root = Self(Folder::new());
        fs::create_dir_all(root.at("run/user/1000/podman")).expect("created");
        root.give("run/user/1000", USER);
        root.give("run/user/1000/podman", USER);
        Some(root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.at(path)
    }

    fn give(&self, path: &str, user: u32) {
        chown(self.at(path), Some(user), None).expect("given away");
    }

    fn podman(&self) -> PathBuf {
        self.at("run/user/1000/podman/podman.sock")
    }

    /// The sockets that are found in the usual places.
    fn found(&self) -> Vec<PathBuf> {
        self.places().look().endpoints.into_iter().map(|endpoint| endpoint.path).collect()
    }

    fn places(&self) -> SocketPaths {
        SocketPaths::Usual { roots: vec![self.at("")], docker_host: None }
    }

    fn directory(&self) -> Directory {
        Directory::with(Sources::new(Runtimes::local(self.places()), None))
    }
}

/// Binds a socket as a user does: the file and the peer are that user's.
fn bind(socket: &Path, user: u32) -> StdListener {
    let socket = socket.to_owned();
    let binding = std::thread::spawn(move || {
        let user = RawUid::from_raw(user);
        // User ids are each thread's own, and this thread ends with the socket.
        set_thread_res_uid(user, user, user).expect("another user");
        StdListener::bind(socket).expect("bound")
    });
    binding.join().expect("a socket")
}

/// A server that is a user's.
fn serve(socket: &Path, user: u32, acts: impl IntoIterator<Item = Act>) -> Server {
    let listener = bind(socket, user);
    listener.set_nonblocking(true).expect("non-blocking");
    Server::listening(UnixListener::from_std(listener).expect("a listener"), acts)
}

fn named(name: &str) -> Act {
    Act::json(200, &format!("{{\"Id\":\"{ID}\",\"Name\":\"/{name}\"}}"))
}

fn of_user(user: u32) -> Lookup {
    Lookup { user: Some(Uid(user)), ..lookup(ID, Some(Runtime::Podman)) }
}

fn name(outcome: Result<Metadata, Unknown>) -> Result<Option<String>, Unknown> {
    outcome.map(|metadata| metadata.name)
}

/// Connects, and returns the refusal if there is one.
async fn refusal(endpoint: &Endpoint) -> Option<Refusal> {
    let error = endpoint.connect().err()?;
    assert_eq!(Reason::from(&error), Reason::Untrusted, "{error}");
    error.get_ref()?.downcast_ref().copied()
}

#[tokio::test]
async fn the_socket_of_a_user_serves_that_user() {
    let Some(root) = Root::new() else { return };
    let mut server = serve(&root.podman(), USER, [named("web")]);
    assert_eq!(root.found(), [root.podman()]);
    let mut directory = root.directory();
    assert_eq!(name(answer(&mut directory, of_user(USER)).await), Ok(Some("web".to_owned())));
    server.request().await;
    for others in [of_user(OTHER), lookup(ID, Some(Runtime::Podman)), lookup(ID, Some(Runtime::Docker))] {
        assert_eq!(answer(&mut directory, others).await, Err(Unknown::NobodyToAsk));
    }
    assert!(server.events.try_recv().is_err(), "the socket is asked once");
}

#[tokio::test]
async fn calls_to_the_socket_of_a_user_are_paced_and_their_replies_short() {
    let Some(root) = Root::new() else { return };
    let long = format!("{{\"Id\":\"{ID}\",\"Padding\":\"{}\"}}", "x".repeat(128 << 10));
    let mut server = serve(&root.podman(), USER, [named("web"), Act::json(200, &long)]);
    let mut directory = root.directory();
    let asked = tokio::time::Instant::now();
    assert!(answer(&mut directory, of_user(USER)).await.is_ok());
    assert!(asked.elapsed() >= Duration::from_millis(50));
    server.request().await;
    let outcome = hurried(answer(&mut directory, of_user(USER))).await;
    assert_eq!(outcome, Err(Unknown::NoAnswer(Reason::Closed)));
}

#[tokio::test]
async fn the_sockets_of_the_system_serve_no_user() {
    let Some(root) = Root::new() else { return };
    let mut server = Server::listen(&root.at("run/docker.sock"), [named("web")]);
    let mut directory = root.directory();
    let podman = |user| Lookup { user, ..lookup(ID, Some(Runtime::Docker)) };
    assert_eq!(answer(&mut directory, podman(Some(Uid(USER)))).await, Err(Unknown::NobodyToAsk));
    assert!(server.events.try_recv().is_err());
    assert_eq!(name(answer(&mut directory, podman(None)).await), Ok(Some("web".to_owned())));
}

#[tokio::test]
async fn symbolic_links_in_a_runtime_directory_are_refused() {
    let Some(root) = Root::new() else { return };
    // An attacker replaces the socket or its directory by a link to a socket of the user or of root.
    fs::create_dir(root.at("elsewhere")).expect("created");
    root.give("elsewhere", USER);
    let _servers = [bind(&root.at("elsewhere/podman.sock"), USER), bind(&root.at("elsewhere/docker.sock"), 0)];
    for target in ["elsewhere/podman.sock", "elsewhere/docker.sock"] {
        symlink(root.at(target), root.podman()).expect("linked");
        lchown(root.podman(), Some(USER), None).expect("given away");
        assert_eq!(refusal(&Endpoint::usual(root.podman())).await, Some(Refusal::Link));
        assert_eq!(root.found(), [] as [PathBuf; 0]);
        fs::remove_file(root.podman()).expect("removed");
    }
    fs::remove_dir(root.at("run/user/1000/podman")).expect("removed");
    symlink(root.at("elsewhere"), root.at("run/user/1000/podman")).expect("linked");
    lchown(root.at("run/user/1000/podman"), Some(USER), None).expect("given away");
    assert_eq!(refusal(&Endpoint::usual(root.podman())).await, Some(Refusal::Link));
    assert_eq!(root.found(), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn files_of_another_owner_are_refused() {
    let Some(root) = Root::new() else { return };
    let _server = bind(&root.podman(), USER);
    for path in ["run/user/1000/podman/podman.sock", "run/user/1000/podman", "run/user/1000"] {
        root.give(path, OTHER);
        assert_eq!(refusal(&Endpoint::usual(root.podman())).await, Some(Refusal::Owner(OTHER, USER)), "{path}");
        assert_eq!(root.found(), [] as [PathBuf; 0], "{path}");
        root.give(path, USER);
    }
    assert_eq!(root.found(), [root.podman()]);
}

#[tokio::test]
async fn a_usual_socket_of_another_owner_than_root_is_refused() {
    let Some(root) = Root::new() else { return };
    let socket = root.at("run/docker.sock");
    let _server = StdListener::bind(&socket).expect("bound");
    assert_eq!(root.found(), std::slice::from_ref(&socket));
    root.give("run/docker.sock", USER);
    let look = root.places().look();
    let reason = format!("owned by uid {USER}, not by uid 0");
    assert_eq!((look.endpoints, look.unusable), (vec![], vec![(socket.clone(), reason)]), "the log names it");
    assert_eq!(refusal(&Endpoint::usual(socket.clone())).await, Some(Refusal::Owner(USER, 0)));
    assert!(refusal(&Endpoint::named(socket)).await.is_none(), "the settings name it");
}

#[tokio::test]
async fn a_peer_of_another_user_is_refused() {
    let Some(root) = Root::new() else { return };
    // Root listens behind a file that was given to the user.
    let _server = StdListener::bind(root.podman()).expect("bound");
    root.give("run/user/1000/podman/podman.sock", USER);
    assert_eq!(refusal(&Endpoint::usual(root.podman())).await, Some(Refusal::Peer(0, USER)));
}

#[tokio::test]
async fn a_named_socket_of_a_user_serves_that_user() {
    let Some(root) = Root::new() else { return };
    let _server = bind(&root.podman(), USER);
    let link = root.at("named.sock");
    symlink(root.podman(), &link).expect("linked");
    let target = root.podman().canonicalize().expect("there");
    assert_eq!(Endpoint::named(link.clone()), Endpoint { path: target, owner: Owner::User(USER) });
    // A link that leads there only after the name was read.
    let late = Endpoint { path: link, owner: Owner::Any };
    assert_eq!(refusal(&late).await, Some(Refusal::Path));
    let leaving = Endpoint::named(root.at("run/user/1000/../../../named.sock"));
    assert_eq!(refusal(&leaving).await, Some(Refusal::Path));
}

#[test]
fn mounts_in_a_runtime_directory_are_refused() {
    let Some(root) = Root::new() else { return };
    // A mount namespace is each thread's own, and ends with it.
    let mounting = std::thread::spawn(move || {
        // SAFETY: the thread keeps its table of file descriptors.
        let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) };
        if let Err(error) = unshared {
            skip(&format!("mounts in a runtime directory: no mount namespace: {error}"));
            return None;
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private");
        let podman = root.at("run/user/1000/podman");
        mount("tmpfs", &podman, "tmpfs", MountFlags::empty(), None).expect("mounted");
        root.give("run/user/1000/podman", USER);
        let _server = bind(&root.podman(), USER);
        let error = Endpoint::usual(root.podman()).identity().expect_err("refused");
        unmount(&podman, UnmountFlags::DETACH).expect("unmounted");
        assert!(error.get_ref().is_some(), "{error}");
        error.get_ref().and_then(|cause| cause.downcast_ref::<Refusal>().copied())
    });
    let refusal = mounting.join().expect("no panic");
    assert!(refusal.is_none_or(|refusal| refusal == Refusal::Mount), "{refusal:?}");
}

#[tokio::test]
async fn what_is_no_socket_is_refused() {
    let Some(root) = Root::new() else { return };
    fs::write(root.podman(), "").expect("written");
    root.give("run/user/1000/podman/podman.sock", USER);
    assert_eq!(refusal(&Endpoint::usual(root.podman())).await, Some(Refusal::NoSocket));
}

#[tokio::test]
async fn a_slow_user_delays_nobody() {
    let Some(root) = Root::new() else { return };
    let mut slow = serve(&root.podman(), USER, [Act::hang()]);
    let _docker = Server::listen(&root.at("run/docker.sock"), [named("web")]);
    let mut directory = root.directory();
    let forged = |number: u32| Lookup { container: ContainerId(format!("{number:064}")), ..of_user(USER) };
    let taken = (0..5000).take_while(|number| directory.submit(forged(*number))).count();
    assert_eq!(taken, 32 + 128, "the user's questions are bounded");
    slow.request().await;
    let asked = tokio::time::Instant::now();
    let outcome = answer(&mut directory, lookup(ID, Some(Runtime::Docker))).await;
    assert_eq!(name(outcome), Ok(Some("web".to_owned())));
    assert!(asked.elapsed() < Duration::from_secs(2), "the user's calls time out first");
    let statistics = directory.statistics();
    assert_eq!((statistics.questions, statistics.queue_full), (32 + 1, 1));
    // Each answer admits a waiting lookup.
    for _ in 0..taken {
        assert!(hurried(directory.next_result()).await.outcome.is_err());
    }
    assert!(directory.submit(forged(0)));
}

#[tokio::test]
async fn a_slow_source_delays_no_other() {
    let folder = Folder::new();
    let sockets = ["crio.sock", "docker.sock"].map(|name| folder.at(name));
    let mut slow = Server::listen(&sockets[0], [Act::hang()]);
    let _docker = Server::listen(&sockets[1], [named("web")]);
    let mut directory = super::directory(sockets);
    for number in 0..600 {
        assert!(directory.submit(lookup(&format!("{number:064}"), Some(Runtime::Crio))));
    }
    slow.request().await;
    let outcome = answer(&mut directory, lookup(ID, Some(Runtime::Docker))).await;
    assert_eq!(name(outcome), Ok(Some("web".to_owned())));
    // Four calls and a queue of 512: the other questions are tried again later.
    assert!(directory.statistics().failures[&("cri", "busy")] >= 600 - 4 - 512);
}

#[tokio::test]
async fn an_answer_with_many_labels_is_kept_within_its_limit() {
    let labels: Vec<String> = (0..5000).map(|number| format!("\"l{number}\":\"{}\"", "x".repeat(10))).collect();
    let labels = format!("{},\"com.docker.compose.service\":\"web\"", labels.join(","));
    let body = format!("{{\"Id\":\"{ID}\",\"Config\":{{\"Labels\":{{{labels}}}}}}}");
    let folder = Folder::new();
    let _server = Server::listen(&folder.at("docker.sock"), [Act::json(200, &body)]);
    let mut directory = super::directory([folder.at("docker.sock")]);
    let metadata = answer(&mut directory, lookup(ID, None)).await.expect("known");
    assert_eq!(metadata.labels, super::map(&[("com.docker.compose.service", "web")]));
}
