//! The critical path.

use std::collections::BTreeSet;

use super::{Edge, Percentile};

/// Returns the indices of the edges of the critical path: from an entry point, which no service calls, always the slowest call. The time of a
/// call includes the calls of its server, so the path begins at the entry point with the slowest call.
pub fn critical(edges: &[Edge], percentile: Percentile) -> BTreeSet<usize> {
    let servers: BTreeSet<&str> =
        edges.iter().filter(|edge| edge.client != edge.server).map(|edge| &*edge.server).collect();
    let slowest = |among: &dyn Fn(&Edge) -> bool| {
        let times = edges.iter().enumerate().filter(|(_, edge)| among(edge));
        let times = times.filter_map(|(index, edge)| Some((index, edge.percentile(percentile)?)));
        times.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(index, _)| index)
    };
    let mut path = BTreeSet::new();
    let mut visited: BTreeSet<&str> = BTreeSet::new();
    // In a cycle, every service is called.
    let mut next = slowest(&|edge| !servers.contains(&*edge.client)).or_else(|| slowest(&|_| true));
    while let Some(index) = next {
        let edge = &edges[index];
        path.insert(index);
        visited.insert(&edge.client);
        if !visited.insert(&edge.server) {
            break;
        }
        next = slowest(&|call| call.client == edge.server && !visited.contains(&*call.server));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::tests::example;

    fn names(edges: &[Edge]) -> Vec<String> {
        critical(edges, Percentile::P99).into_iter().map(|index| edges[index].server.clone()).collect()
    }

    #[test]
    fn the_path_follows_the_slowest_calls() {
        assert_eq!(names(&example().edges), ["middle", "store", "disk \"1\" <a&b>"]);
    }

    #[test]
    fn cycles_end_and_edges_without_times_are_left_out() {
        let edge = |client: &str, server: &str, p99| Edge {
            client: client.to_owned(),
            server: server.to_owned(),
            p99,
            ..Edge::default()
        };
        assert_eq!(names(&[edge("a", "b", Some(1.0)), edge("b", "a", Some(2.0))]), ["a"]);
        assert_eq!(names(&[edge("a", "a", Some(1.0))]), ["a"]);
        assert_eq!(names(&[edge("a", "b", None)]), Vec::<String>::new());
        assert_eq!(names(&[]), Vec::<String>::new());
    }
}
