//! Sockets of runtimes that belong to local users.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    time::Duration,
};

use crate::support::{
    containers::{id, names, of_root, of_user},
    player::Player,
    runtime::{OF_USER, Runtime, USER, container, with_private_run},
    sidecar::Sidecar,
    surroundings::{alone, often, patience, wait_for},
    tree::Tree,
};

/// Snapshots within which the sidecar queries runtimes more than once.
const SNAPSHOTS: usize = 10;
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
