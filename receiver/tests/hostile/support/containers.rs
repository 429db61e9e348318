//! Cgroups of containers, and their points.

use super::line::{Line, Point};

/// The cgroup of a user's own runtime, with its containers below.
pub const OF_USER: &str = "user.slice/user-1000.slice/user@1000.service";

/// Returns the id of a container with a number.
pub fn id(number: u64) -> String {
    format!("{:064x}", 0xabc_0000_0000 + number)
}

/// Returns the cgroup that Docker, as root, creates for a container.
pub fn of_root(id: &str) -> String {
    format!("system.slice/docker-{id}.scope")
}

/// Returns a cgroup with an equal name, which a user creates.
pub fn of_user(id: &str) -> String {
    format!("{OF_USER}/app.slice/docker-{id}.scope")
}

/// Returns the points of the workloads with this container id.
pub fn points<'a>(line: &'a Line, id: &'a str) -> impl Iterator<Item = &'a Point> {
    line.points.iter().filter(move |point| point.resource.get("container.id").is_some_and(|of| of == id))
}

/// Returns the names of the workloads with this container id.
pub fn names(line: &Line, id: &str) -> Vec<String> {
    let mut names: Vec<_> =
        points(line, id).filter_map(|point| point.resource.get("container.name").cloned()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the largest number of UDP packets that a layer counted for an instance.
pub fn datagrams(line: &Line, instance: &str) -> f64 {
    let layers = ["transport", "socket_enqueued", "socket_read"];
    let of = |layer| {
        let attributes = [("undercurrent.network.layer", layer), ("network.transport", "udp")];
        let points = line.find("undercurrent.network.receive.duration", &attributes);
        points.filter(|point| instance_of(point) == instance).map(Point::amount).sum::<f64>()
    };
    layers.map(of).into_iter().fold(0.0, f64::max)
}

/// Returns the instance of a point.
pub fn instance_of(point: &Point) -> &str {
    point.resource.get("service.instance.id").map_or("", String::as_str)
}
