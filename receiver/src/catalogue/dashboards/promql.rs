//! The parts that queries of dashboards share.

/// Selects the workloads of the variables, without the node.
const WORKLOADS: &str =
    r#"host_name=~"$host", k8s_namespace_name=~"$namespace", instance=~"$workload", job!="undercurrent""#;
/// Selects the hosts of the variable, with their workloads.
const HOSTS: &str = r#"host_name=~"$host""#;

/// Start of a part of a query that gets the label `workload`.
const NAMED: &str = "named(";
/// The labels that name a workload. Each kind of workload has some of them.
pub const NAMES: &str = r#""k8s_pod_name", "k8s_container_name", "container_name", "undercurrent_workload_unit", "undercurrent_workload_cgroup""#;
/// Matches the joined names of: a container in a pod or the pod, a container of an engine, a unit, another cgroup, the node.
const JOINED: &str = "([^/]+(?:/[^/]+)?)//.*|//([^/]+)/+|///([^/]+)/.*|////(.+)|/+";

/// Returns a query in PromQL. `$workloads` and `$hosts` are matchers of the variables, and `named(...)` adds the label `workload` with
/// the name of the workload: the pod and container, the container, the unit, or the cgroup; `node` for the node.
#[must_use]
pub fn expand(query: &str) -> String {
    let query = query.replace("$workloads", WORKLOADS).replace("$hosts", HOSTS);
    let Some((before, rest)) = query.split_once(NAMED) else { return query };
    let (inside, after) = rest.split_at(closing(rest));
    format!("{before}{}{}", named(&expand(inside)), expand(&after[1..]))
}

/// Adds the label `workload` to the series of an expression.
fn named(expression: &str) -> String {
    format!(
        "label_replace(label_replace(label_join({expression}, \"workload\", \"/\", {NAMES}), \
         \"workload\", \"$1$2$3$4\", \"workload\", \"{JOINED}\"), \"workload\", \"node\", \"workload\", \"\")"
    )
}

/// Returns the place of the parenthesis that closes the one before a text, or the text's end.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    for (place, letter) in text.char_indices() {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return place;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudo_functions_are_expanded_once_each() {
        let query = expand("sum(named(rate(a{$hosts}[1m]))) / named(b{$workloads}) + c");
        assert_eq!(query.matches("label_join(rate(a{host_name=~\"$host\"}[1m]), \"workload\"").count(), 1, "{query}");
        assert_eq!(query.matches("label_join(b{host_name=~\"$host\", k8s_namespace_name").count(), 1, "{query}");
        assert!(!query.contains(NAMED) && query.ends_with(") + c"), "{query}");
    }
}
