//! Sockets of runtimes that belong to local users.

use std::{
    ffi::CString,
    fs::{self, Permissions},
    io::{ErrorKind, Write as _},
    net::TcpListener,
    os::{
        fd::AsRawFd as _,
        unix::fs::{PermissionsExt as _, symlink},
    },
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::support::{
    containers::{id, names, of_root, of_user},
    player::Player,
    runtime::{OF_USER, Runtime, USER, container, with_private_run},
    sidecar::Sidecar,
    status::Status,
    surroundings::{alone, often, patience, skip, wait_for},
    tree::Tree,
};

/// Snapshots within which the sidecar queries runtimes more than once.
const SNAPSHOTS: usize = 10;
/// The memory that an attack may add to the worker, in kilobytes.
const GROWTH: u64 = 8 << 10;
/// More containers than the limit of a user's open and pending queries.
const MANY: u64 = 200;

fn is_named(sidecar: &Sidecar, id: &str, name: &str) {
    wait_for("the name of a container", patience(Duration::from_secs(10)), || {
        (names(&sidecar.snapshot(), id) == [name]).then_some(())
    });
}

#[test]
fn a_user_s_socket_names_no_container_of_root() {
    const TEST: &str = "the socket of a user";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    with_private_run(|| {
        let socket = format!("{OF_USER}/podman/podman.sock");
        let runtime = Runtime::listen(&socket, USER, |path| Some(container(path, "forged")));
        let sidecar = Sidecar::start(often());
        let (podman, docker, own) = (id(1), id(2), id(3));
        let cgroups = [format!("machine.slice/libpod-{podman}.scope"), of_root(&docker), of_user(&own)];
        let _players = cgroups.map(|cgroup| Player::start("echo", &tree.make(&cgroup), &[]));
        is_named(&sidecar, &own, "forged");
        (0..SNAPSHOTS).for_each(|_| drop(sidecar.snapshot()));
        let line = sidecar.snapshot();
        for victim in [&podman, &docker] {
            assert!(line.points.iter().any(|point| point.resource.get("container.id") == Some(victim)));
            assert_eq!(names(&line, victim), [""; 0]);
            assert!(runtime.requests().iter().all(|request| !request.contains(victim)), "{:?}", runtime.requests());
        }
    });
}

#[test]
fn a_user_s_file_system_that_never_replies_hides_no_names() {
    const TEST: &str = "a user's FUSE file system";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let Ok(silent) = fs::File::options().read(true).write(true).open("/dev/fuse") else {
        return skip(&format!("{TEST}: this kernel has no FUSE"));
    };
    with_private_run(|| {
        let options = format!("fd={},rootmode=40000,user_id={USER},group_id=0,allow_other", silent.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("silent", OF_USER, "fuse", MountFlags::empty(), Some(&*options)).unwrap();
        let _docker = Runtime::listen("/run/docker.sock", 0, |path| Some(container(path, "usual")));
        let sidecar = Sidecar::start(often());
        let docker = id(2);
        let _player = Player::start("echo", &tree.make(&of_root(&docker)), &[]);
        is_named(&sidecar, &docker, "usual");
        sidecar.stop();
        unmount(OF_USER, UnmountFlags::DETACH).unwrap();
    });
}

#[test]
fn a_link_does_not_lead_to_a_socket_that_only_root_may_use() {
    const TEST: &str = "a link to a socket of root";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    with_private_run(|| {
        fs::create_dir("/run/secret").unwrap();
        fs::set_permissions("/run/secret", Permissions::from_mode(0o700)).unwrap();
        let secret = Runtime::listen("/run/secret/secret.sock", 0, |path| Some(container(path, "secret")));
        symlink("/run/secret/secret.sock", format!("{OF_USER}/podman/podman.sock")).unwrap();
        let _own = Runtime::listen(&format!("{OF_USER}/docker.sock"), USER, |path| Some(container(path, "own")));
        let sidecar = Sidecar::start(often());
        let own = id(1);
        let _player = Player::start("echo", &tree.make(&of_user(&own)), &[]);
        is_named(&sidecar, &own, "own");
        assert_eq!(secret.requests(), [""; 0]);
    });
}

#[test]
fn a_slow_socket_and_forged_ids_of_a_user_leave_no_container_of_root_unnamed() {
    const TEST: &str = "a slow socket";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    with_private_run(|| {
        let slow = Runtime::listen(&format!("{OF_USER}/docker.sock"), USER, |_| None);
        let _docker = Runtime::listen("/run/docker.sock", 0, |path| Some(container(path, "rightful")));
        let sidecar = Sidecar::start(often());
        (0..MANY).for_each(|number| drop(tree.make(&of_user(&id(1000 + number)))));
        wait_for("requests to the slow socket", patience(Duration::from_secs(10)), || {
            (!slow.requests().is_empty()).then_some(())
        });
        let rightful = id(1);
        let _player = Player::start("echo", &tree.make(&of_root(&rightful)), &[]);
        is_named(&sidecar, &rightful, "rightful");
    });
}

#[test]
fn a_redirect_of_a_runtime_is_not_followed() {
    const TEST: &str = "a redirect";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let location = format!("http://{}/", elsewhere.local_addr().unwrap());
    with_private_run(|| {
        let runtime = Runtime::serve("/run/docker.sock", 0, move |_, mut client| {
            let head = format!("HTTP/1.1 301 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            // The client may have gone.
            let _ = client.write_all(head.as_bytes());
        });
        let sidecar = Sidecar::start(often());
        let id = id(1);
        let _player = Player::start("echo", &tree.make(&of_root(&id)), &[]);
        wait_for("a request", patience(Duration::from_secs(10)), || (!runtime.requests().is_empty()).then_some(()));
        (0..SNAPSHOTS).for_each(|_| drop(sidecar.snapshot()));
        assert_eq!(names(&sidecar.snapshot(), &id), [""; 0]);
        assert_eq!(elsewhere.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn an_endless_answer_of_a_runtime_fills_no_memory() {
    const TEST: &str = "an endless answer";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let ended = Arc::<AtomicU64>::default();
    let total = Arc::clone(&ended);
    with_private_run(|| {
        let _runtime = Runtime::serve("/run/docker.sock", 0, move |_, mut client| {
            let ended = Arc::clone(&total);
            thread::spawn(move || {
                let mut text = b"HTTP/1.1 200 OK\r\n\r\n{\"Id\":\"".to_vec();
                while client.write_all(&text).is_ok() {
                    text = vec![b'x'; 1 << 16];
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        });
        let sidecar = Sidecar::start(often());
        let memory = || Status::of_process(sidecar.pid()).unwrap().number("RssAnon");
        sidecar.snapshot();
        let before = memory();
        let _player = Player::start("echo", &tree.make(&of_root(&id(1))), &[]);
        let most = wait_for("the end of an answer", patience(Duration::from_secs(10)), || {
            let now = (sidecar.snapshot(), memory()).1;
            (ended.load(Ordering::Relaxed) > 0).then_some(now)
        });
        let most = (0..SNAPSHOTS).map(|_| (sidecar.snapshot(), memory()).1).max().unwrap().max(most);
        eprintln!("{before} kB before, {most} kB at most");
        assert!(most <= before + GROWTH, "{before} kB before, {most} kB at most");
    });
}
