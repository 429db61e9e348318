//! Forged identities and floods of cgroups by local users and containers.

use super::*;
use crate::{ContainerId, Service};

const VICTIM: &str = "3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860";

fn forged(user: u32) -> String {
    format!("/user.slice/user-{user}.slice/user@{user}.service/app.slice/docker-{VICTIM}.scope")
}

fn slot_of_cgroup(world: &World, id: u64) -> Slot {
    world.registry.owners.slot(id).expect("a known cgroup")
}

fn instance_of(world: &World, id: u64) -> (&'static str, Vec<u8>) {
    world.registry.get(CgroupId(id)).expect("a workload").instance.clone()
}

/// A user can give a cgroup the name of a victim's container.
#[test]
fn a_cgroup_with_the_id_of_another_container_is_another_workload() {
    let mut world = World::new(8);
    let victim = format!("/system.slice/docker-{VICTIM}.scope");
    for (id, path) in [(2, victim.clone()), (3, forged(1000)), (4, forged(1001)), (5, format!("/docker/{VICTIM}"))] {
        appear(&mut world, id, &path);
    }
    let slots: std::collections::BTreeSet<Slot> = (2..=5).map(|id| slot_of_cgroup(&world, id)).collect();
    assert_eq!(slots.len(), 4, "no two paths share a slot");
    let instances: std::collections::BTreeSet<_> = (2..=5).map(|id| instance_of(&world, id)).collect();
    assert_eq!(instances.len(), 4, "no two paths share an instance");
    assert_eq!(instance_of(&world, 2), ("container", VICTIM.as_bytes().to_vec()));
    world.event(3);
    assert_eq!(world.cells.get(&slot_of_cgroup(&world, 2)), None);
}

fn container_id(world: &mut World, id: u64) -> Option<String> {
    let node = Attributes::new();
    world.registry.settle_claims(&node);
    let workload = world.registry.get_mut(CgroupId(id)).expect("a workload");
    workload.describe(&node);
    workload.resource.attributes.get("container.id").map(ToString::to_string)
}

/// The order of the cgroups does not matter.
#[test]
fn an_id_that_a_cgroup_outside_of_a_user_s_subtree_has_is_no_identity() {
    let victim = format!("/system.slice/docker-{VICTIM}.scope");
    for paths in [[victim.clone(), forged(1000)], [forged(1000), victim.clone()]] {
        let mut world = World::new(8);
        appear(&mut world, 1, &paths[0]);
        appear(&mut world, 2, &paths[1]);
        for (id, path) in (1..).zip(&paths) {
            assert_eq!(container_id(&mut world, id).is_some(), *path == victim, "{paths:?}: {path}");
        }
    }
}

#[test]
fn users_have_an_id_only_if_no_other_user_has_it() {
    let mut world = World::new(64);
    let second = format!("{MANAGER}/user.slice/docker-{VICTIM}.scope");
    appear(&mut world, 1, &forged(1000));
    assert!(container_id(&mut world, 1).is_some(), "a rootless container");
    appear(&mut world, 2, &second);
    assert!(container_id(&mut world, 1).is_some() && container_id(&mut world, 2).is_some(), "one user");
    appear(&mut world, 3, &forged(1001));
    assert_eq!([1, 2, 3].map(|id| container_id(&mut world, id)), [None, None, None]);
    world.registry.vanished(CgroupId(3));
    (0..4).for_each(|_| world.tick(true));
    assert!(container_id(&mut world, 1).is_some(), "the other claim has ended");
}

#[test]
fn only_a_cgroup_at_the_same_path_resumes_a_workload() {
    let mut world = World::new(8);
    let victim = format!("/system.slice/docker-{VICTIM}.scope");
    appear(&mut world, 2, &victim);
    let (slot, start) = world.registry.get(CgroupId(2)).map(|workload| (workload.slot, workload.start)).expect("it");
    world.registry.vanished(CgroupId(2));
    world.tick(true);
    // While the victim restarts.
    appear(&mut world, 3, &forged(1000));
    appear(&mut world, 4, &format!("/docker/{VICTIM}"));
    assert!(slot_of_cgroup(&world, 3) != slot && slot_of_cgroup(&world, 4) != slot);
    assert_ne!(instance_of(&world, 4), ("container", VICTIM.as_bytes().to_vec()), "the gone one's series is not over");
    appear(&mut world, 5, &victim);
    let again = world.registry.get(CgroupId(5)).expect("it");
    assert_eq!((again.slot, again.start, again.stage), (slot, start, Stage::Present));
    assert_eq!(instance_of(&world, 5), ("container", VICTIM.as_bytes().to_vec()));
}

proptest! {
    /// Paths with few ids under many parents, so that most claim to be another.
    #[test]
    fn no_two_paths_ever_share_a_slot_or_an_instance(
        steps in prop::collection::vec((0_usize..6, 0_u8..3, any::<bool>()), 1..200),
    ) {
        let mut world = World::new(30);
        let (mut next, mut ids) = (100, BTreeMap::new());
        for (parent, id, appears) in steps {
            let container = format!("docker-{}.scope", VICTIM.replace('3', &id.to_string()));
            let parents = ["/system.slice", "/machine.slice", "/batch", "/user.slice/user-7.slice/user@7.service",
                "/user.slice/user-8.slice/user@8.service", "/system.slice/app.service"];
            let path = format!("{}/{container}", parents[parent]);
            if appears {
                next += 1;
                ids.insert(path.clone(), next);
                appear(&mut world, next, &path);
            } else if let Some(id) = ids.remove(&path) {
                world.registry.vanished(CgroupId(id));
            }
            world.tick(true);
            let all: Vec<&Workload> = world.registry.iter().filter(|workload| workload.slot != Slot::OVERFLOW).collect();
            let instances: HashSet<_> = all.iter().map(|workload| &workload.instance).collect();
            let slots: HashSet<_> = all.iter().map(|workload| workload.slot).collect();
            let paths: HashSet<_> = all.iter().map(|workload| &workload.path).collect();
            prop_assert_eq!((instances.len(), slots.len(), paths.len()), (all.len(), all.len(), all.len()));
        }
    }
}

const MANAGER: &str = "/user.slice/user-1000.slice/user@1000.service";

/// A container's id of a number.
fn docker(n: u64) -> String {
    format!("docker-{n:064x}.scope")
}

/// A container that starts after a flood has a slot, and its packets are its own.
fn starts_unhindered(world: &mut World, id: u64) {
    appear(world, id, &format!("/system.slice/{}", docker(id)));
    world.registry.in_namespace(CgroupId(id), id as u32);
    let slot = slot_of_cgroup(world, id);
    assert!(slot != Slot::NODE && slot != Slot::OVERFLOW, "{slot:?}");
    assert_eq!(world.registry.owners.slot(NAMESPACE | id), Some(slot));
}

#[test]
fn a_user_s_flood_of_cgroups_leaves_room_for_everybody_else() {
    let mut world = World::new(256);
    appear(&mut world, 2, MANAGER);
    for n in 0..9000 {
        appear(&mut world, 1000 + n, &format!("{MANAGER}/app.slice/n{n}"));
    }
    let counts = world.registry.counts();
    assert_eq!((counts.cgroup_quota, counts.table_full), (9001 - CAPACITY as u64 / 8, 0));
    for (id, path) in [(20_000, "/user.slice/user-1001.slice/session-1.scope"), (20_001, "/kubepods/burstable")] {
        appear(&mut world, id, path);
        assert!(world.registry.owners.slot(id).is_some(), "{path}");
    }
    starts_unhindered(&mut world, 20_002);
    // Events in a refused cgroup count with the node.
    world.event(1000 + 8999);
    assert_eq!(world.cells.get(&Slot::NODE), Some(&1));
    // The quota is free again.
    (0..9000).for_each(|n| world.registry.vanished(CgroupId(1000 + n)));
    appear(&mut world, 30_000, &format!("{MANAGER}/app.slice/again"));
    assert_eq!(slot_of_cgroup(&world, 30_000), slot_of_cgroup(&world, 2));
}

#[test]
fn many_users_floods_leave_the_system_half() {
    let mut world = World::new(256);
    for user in 1..20 {
        for n in 0..1000 {
            let path = format!("/user.slice/user-{user}.slice/session-{n}.scope");
            appear(&mut world, user * 10_000 + n, &path);
        }
    }
    assert!(world.registry.cgroups.len() <= CAPACITY / 2);
    let slots = world.registry.iter().filter(|workload| workload.slot != Slot::OVERFLOW).count();
    assert_eq!(slots, 128);
    (0..128).for_each(|n| starts_unhindered(&mut world, 1_000_000 + n));
}

#[test]
fn a_container_s_flood_counts_against_that_container() {
    let mut world = World::new(256);
    let flooder = format!("/system.slice/{}", docker(1));
    appear(&mut world, 2, &flooder);
    for n in 0..9000 {
        appear(&mut world, 1000 + n, &format!("{flooder}/n{n}"));
    }
    assert_eq!(world.registry.counts().cgroup_quota, 9000 - 1024);
    assert_eq!(slot_of_cgroup(&world, 1000), slot_of_cgroup(&world, 2));
    starts_unhindered(&mut world, 20_000);
}

#[test]
fn forged_containers_take_a_share_of_the_slots_at_most() {
    for parent in [MANAGER.to_owned(), format!("/system.slice/{}", docker(1))] {
        let mut world = World::new(256);
        appear(&mut world, 2, &parent);
        for n in 0..300 {
            appear(&mut world, 1000 + n, &format!("{parent}/{}", docker(n)));
        }
        let of_flood = |workload: &&Workload| workload.cgroup >= CgroupId(1000);
        let folded = world.registry.iter().filter(of_flood).filter(|workload| workload.is_folded()).count();
        let own = world.registry.iter().filter(of_flood).filter(|workload| !workload.is_folded()).count();
        assert!((31..=32).contains(&own) && own + folded == 300, "{own} {folded} {parent}");
        assert_eq!(world.registry.counts().slot_quota, folded as u64);
        (0..100).for_each(|n| starts_unhindered(&mut world, 20_000 + n));
    }
}

/// A slot counts against its subtree until it is free again, so that making and removing cgroups gains nothing.
#[test]
fn a_slot_that_is_not_free_yet_counts_against_its_subtree() {
    let mut world = World::new(8);
    appear(&mut world, 2, &forged(1000));
    world.registry.vanished(CgroupId(2));
    appear(&mut world, 3, &format!("{MANAGER}/{}", docker(3)));
    assert_eq!(slot_of_cgroup(&world, 3), Slot::OVERFLOW);
    world.registry.vanished(CgroupId(3));
    (0..3).for_each(|_| world.tick(true));
    appear(&mut world, 4, &format!("{MANAGER}/{}", docker(4)));
    assert_ne!(slot_of_cgroup(&world, 4), Slot::OVERFLOW);
}

/// A scan that a flood cut short expires no workload.
#[test]
fn no_workload_expires_by_a_scan_that_a_flood_cut() {
    let mut world = World::new(256);
    let container = |n: u64| format!("/system.slice/{}", docker(n));
    (2..100).for_each(|n| appear(&mut world, n, &container(n)));
    let flood = (0..18_000)
        .map(|n| Cgroup { id: CgroupId(100_000 + n), path: CgroupPath::new(format!("{MANAGER}/n{n}").as_bytes()) });
    let manager = Cgroup { id: CgroupId(99_999), path: CgroupPath::new(MANAGER.as_bytes()) };
    let cut: Vec<Cgroup> = std::iter::once(manager).chain(flood.take(16_000)).collect();
    // The hierarchy still holds every container but one.
    let new = world.registry.reconcile(cut, |id, _| id == CgroupId(50), UnixNanos(9));
    assert_eq!(new, [CgroupId(99_999)]);
    for n in 2..100 {
        let stage = world.registry.get(CgroupId(n)).map(|workload| workload.stage);
        assert_eq!(stage, Some(if n == 50 { Stage::Gone } else { Stage::Present }), "{n}");
    }
}

fn named(name: &str) -> Metadata {
    Metadata { name: Some(name.to_owned()), ..Metadata::default() }
}

fn container_name(world: &World, id: u64) -> Option<String> {
    let workload = world.registry.get(CgroupId(id)).expect("a workload");
    workload.resource.attributes.get("container.name").map(ToString::to_string)
}

fn lookup(path: &str) -> Lookup {
    Lookup::new(ContainerId(VICTIM.to_owned()), None, None, &CgroupPath::new(path.as_bytes()))
}

#[test]
fn a_forged_container_does_not_learn_its_victim_s_name() {
    let mut world = World::new(64);
    let node = Attributes::new();
    let (rightful, of_user) = (format!("/system.slice/docker-{VICTIM}.scope"), forged(1000));
    appear(&mut world, 3, &of_user);
    appear(&mut world, 4, &format!("/docker/{}/docker-{VICTIM}.scope", VICTIM.replace('3', "4")));
    let names = |world: &World, ids: &[u64]| ids.iter().map(|id| container_name(world, *id)).collect::<Vec<_>>();
    let name = |text: &str| Some(text.to_owned());
    // No container of the system has the id yet: a rootless container and a container in another one have names, too.
    world.registry.learn(&lookup(&of_user), &named("rootless"), &node);
    world.registry.learn(&lookup(&rightful), &named("nested"), &node);
    assert_eq!(names(&world, &[3, 4]), [name("rootless"), name("nested")]);
    appear(&mut world, 2, &rightful);
    world.registry.learn(&lookup(&rightful), &named("victim"), &node);
    assert_eq!(names(&world, &[2, 3, 4]), [name("victim"), name("rootless"), None]);
    world.registry.learn(&lookup(&of_user), &named("forged"), &node);
    assert_eq!(names(&world, &[2, 3, 4]), [name("victim"), name("forged"), None]);
}

#[test]
fn workloads_in_the_overflow_share_one_resource_and_keep_nothing() {
    let mut world = World::new(0);
    let node = Attributes::new().with("host.name", "node-1");
    appear(&mut world, 2, &format!("/system.slice/docker-{VICTIM}.scope"));
    appear(&mut world, 3, "/b");
    for workload in world.registry.iter_mut() {
        workload.describe(&node);
        assert!(!workload.serves(Service { name: Some("cart".to_owned()), ..Service::default() }));
    }
    world.registry.learn(&lookup("/docker"), &named("web"), &node);
    let shared = world.registry.overflow();
    for workload in world.registry.iter() {
        assert!(Arc::ptr_eq(&workload.resource, &shared) && workload.keeps_nothing());
    }
}
