//! Cgroups of a user that have the name of another user's container.

use std::{collections::BTreeSet, time::Duration};

use crate::support::{
    cgroups::remove,
    containers::{datagrams, id, instance_of, of_root, of_user, points},
    line::{Line, Point},
    player::Player,
    sidecar::Sidecar,
    surroundings::{alone, often, patience, wait_for},
    tree::Tree,
};

const CPU: &str = "undercurrent.cpu.time";
/// Datagrams of the victim and of the attacker.
const DATAGRAMS: (usize, usize) = (7, 50);

/// Returns the instances of the workloads with this container id.
fn instances(line: &Line, id: &str) -> BTreeSet<String> {
    points(line, id).map(|point| point.resource["service.instance.id"].clone()).collect()
}

/// Returns the instance of the workload with this cgroup, if it is a plain cgroup.
fn plain(line: &Line, cgroup: &str) -> Option<String> {
    let of =
        |point: &&Point| point.resource.get("undercurrent.workload.cgroup").is_some_and(|path| path.ends_with(cgroup));
    let point = line.points.iter().find(of)?;
    assert_eq!(point.resource.get("container.id"), None, "{cgroup} has the id of a container");
    Some(point.resource["service.instance.id"].clone())
}

/// Returns the CPU time of an instance in seconds.
fn cpu_time(line: &Line, instance: &str) -> f64 {
    let of = |point: &&_| instance_of(point) == instance;
    line.find(CPU, &[]).filter(of).map(Point::amount).sum()
}

#[test]
fn a_cgroup_with_the_name_of_a_victim_is_another_workload() {
    const TEST: &str = "a forged container";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    let (id, sidecar) = (id(1), Sidecar::start(often()));
    let mut player = Player::start("talk", &tree.make(&of_root(&id)), &[]);
    let victim =
        wait_for("the victim", patience(Duration::from_secs(10)), || instances(&sidecar.snapshot(), &id).pop_first());
    let mut attacker = Player::start("talk", &tree.make(&of_user(&id)), &[]);
    let _burner = tree.burn(&of_user(&id));
    let forged = wait_for("the forged container", patience(Duration::from_secs(10)), || {
        plain(&sidecar.snapshot(), &of_user(&id))
    });
    player.ask(&DATAGRAMS.0.to_string());
    attacker.ask(&DATAGRAMS.1.to_string());
    let line = wait_for("CPU time of the forged container", patience(Duration::from_secs(20)), || {
        Some(sidecar.snapshot()).filter(|line| cpu_time(line, &forged) > 1.0)
    });
    assert!(cpu_time(&line, &victim) < 0.5, "{}", cpu_time(&line, &victim));
    let counted = datagrams(&line, &victim);
    // A busy host's kernel occasionally skips the run of a program.
    assert!(counted > 0.0 && counted <= DATAGRAMS.0 as f64, "{counted}");
    assert!(datagrams(&line, &forged) > 0.8 * DATAGRAMS.1 as f64);
    assert_eq!(instances(&line, &id), BTreeSet::from([victim.clone()]), "only the victim has the container's id");

    // The victim restarts meanwhile.
    drop(player);
    tree.directories(&of_root(&id)).iter().for_each(|directory| remove(directory).unwrap());
    let path = format!("user.slice/user-1001.slice/user@1001.service/docker-{id}.scope");
    let mut other = Player::start("talk", &tree.make(&path), &[]);
    other.ask(&DATAGRAMS.1.to_string());
    let mut player = Player::start("talk", &tree.make(&of_root(&id)), &[]);
    player.ask(&DATAGRAMS.0.to_string());
    let line = wait_for("the victim again", patience(Duration::from_secs(10)), || {
        Some(sidecar.snapshot()).filter(|line| datagrams(line, &victim) > counted)
    });
    assert!(datagrams(&line, &victim) <= 2.0 * DATAGRAMS.0 as f64);
    assert_eq!(instances(&line, &id), BTreeSet::from([victim]));
    assert!([of_user(&id), path].iter().all(|cgroup| plain(&line, cgroup).is_some()));
}
