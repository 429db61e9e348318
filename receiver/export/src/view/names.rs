//! Names of resources.

use std::collections::HashMap;

use crate::{
    telemetry::{Attributes, ResourceMetrics, SCOPE, Value},
    text::plain,
};

/// The length of a shortened id, as the tools of container runtimes display it.
const ID_LENGTH: usize = 12;

/// A resource's name for people. The text is [`plain`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The most specific name.
    pub(super) text: String,
    /// The kind of the resource, if it is a single object.
    pub(super) kind: &'static str,
}

impl Name {
    fn new(text: impl Into<String>, kind: &'static str) -> Self {
        Self { text: text.into(), kind }
    }
}

/// Returns unique names for the resources of a snapshot, with the node first.
pub(super) fn names(resources: &[ResourceMetrics]) -> Vec<Name> {
    let attributes = |index: usize| &resources[index].resource.attributes;
    let mut names: Vec<Name> = (0..resources.len())
        .map(|index| if index == 0 { Name::new("(node)", "") } else { name(attributes(index)) })
        .collect();
    let mut bearers: HashMap<&str, usize> = HashMap::new();
    for name in &names {
        *bearers.entry(&name.text).or_default() += 1;
    }
    let shared: Vec<bool> = names.iter().map(|name| bearers[name.text.as_str()] > 1).collect();
    for (index, name) in names.iter_mut().enumerate().filter(|(index, _)| shared[*index]) {
        let ids = ["container.id", "service.instance.id"];
        if let Some(id) = ids.iter().find_map(|key| text(attributes(index), key)) {
            name.text = format!("{} ({})", name.text, short(&id));
        }
    }
    names
}

/// Returns the name of a resource that is not in a snapshot.
pub(super) fn single(attributes: &Attributes) -> String {
    if text(attributes, "service.name").as_deref() == Some(SCOPE) { "(node)".to_owned() } else { name(attributes).text }
}

/// Returns true for the resource of all workloads beyond the limit.
pub(super) fn is_overflow(attributes: &Attributes) -> bool {
    attributes.get("otel.metric.overflow") == Some(&Value::Flag(true))
}

fn name(attributes: &Attributes) -> Name {
    if is_overflow(attributes) {
        return Name::new("(others beyond the limit)", "");
    }
    let get = |key| text(attributes, key);
    let kind = kind(attributes);
    if let Some(pod) = get("k8s.pod.name") {
        let path = [get("k8s.namespace.name"), Some(pod), get("k8s.container.name")];
        return Name::new(path.into_iter().flatten().collect::<Vec<_>>().join("/"), kind);
    }
    let telling = get("container.name")
        .or_else(|| get("k8s.container.name"))
        .or_else(|| get("undercurrent.workload.unit"))
        .or_else(|| get("service.name"))
        .or_else(|| get("container.id").map(|id| short(&id)))
        .or_else(|| get("k8s.pod.uid"))
        .or_else(|| get("undercurrent.workload.cgroup"));
    Name::new(telling.unwrap_or_else(|| "(unnamed)".to_owned()), kind)
}

/// Returns the kind by the most specific attribute.
fn kind(attributes: &Attributes) -> &'static str {
    const KINDS: [(&str, &str); 7] = [
        ("container.id", "container"),
        ("container.name", "container"),
        ("k8s.container.name", "container"),
        ("k8s.pod.uid", "pod"),
        ("k8s.pod.name", "pod"),
        ("undercurrent.workload.unit", "unit"),
        ("undercurrent.workload.cgroup", "cgroup"),
    ];
    KINDS.iter().find(|(key, _)| attributes.get(key).is_some()).map_or("", |(_, kind)| kind)
}

fn text(attributes: &Attributes, key: &str) -> Option<String> {
    let text = attributes.get(key)?.to_string();
    (!text.is_empty()).then(|| plain(&text).into_owned())
}

fn short(id: &str) -> String {
    id.chars().take(ID_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::resource_metrics;

    fn named(all: &[&[(&'static str, &'static str)]]) -> Vec<(String, &'static str)> {
        let resource = |pairs: &&[(&'static str, &'static str)]| {
            resource_metrics(
                pairs.iter().fold(Attributes::new(), |attributes, (key, value)| attributes.with(*key, *value)),
                vec![],
            )
        };
        let node = resource_metrics(Attributes::new().with("service.name", "undercurrent"), vec![]);
        let resources: Vec<_> = std::iter::once(node).chain(all.iter().map(resource)).collect();
        names(&resources).into_iter().skip(1).map(|name| (name.text, name.kind)).collect()
    }

    #[test]
    fn the_most_specific_name_is_used() {
        const ID: (&str, &str) = ("container.id", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
        const POD: (&str, &str) = ("k8s.pod.name", "web-0");
        const SPACE: (&str, &str) = ("k8s.namespace.name", "default");
        let uid = ("k8s.pod.uid", "6f0a3b1e-6f60-4c0e-9f0e-0e8f3f0b7a11");
        for (attributes, text, kind) in [
            (&[ID, SPACE, POD, ("k8s.container.name", "nginx")][..], "default/web-0/nginx", "container"),
            (&[uid, POD, SPACE], "default/web-0", "pod"),
            (&[POD], "web-0", "pod"),
            (&[uid], uid.1, "pod"),
            (&[ID, ("service.name", "shop"), ("container.name", "web")], "web", "container"),
            (&[ID, ("service.name", "shop"), ("container.name", "")], "shop", "container"),
            (&[ID, ("container.runtime", "docker")], "0123456789ab", "container"),
            (
                &[("undercurrent.workload.cgroup", "/a/b.service"), ("undercurrent.workload.unit", "b.service")],
                "b.service",
                "unit",
            ),
            (&[("undercurrent.workload.cgroup", "/a/b")], "/a/b", "cgroup"),
            (&[("host.name", "node-1")], "(unnamed)", ""),
            (&[("service.name", "shop\x1b[31m")], "shop\\u{1b}[31m", ""),
        ] {
            assert_eq!(named(&[attributes]), [(text.to_owned(), kind)]);
        }
        let overflow = Attributes::new().with("otel.metric.overflow", true).with("host.name", "node-1");
        assert_eq!(name(&overflow), Name::new("(others beyond the limit)", ""));
    }

    #[test]
    fn duplicate_names_get_an_id() {
        let named = named(&[
            &[("container.name", "web"), ("container.id", "aaaaaaaaaaaabbbb")],
            &[("container.name", "db"), ("container.id", "dddddddddddddddd")],
            &[("container.name", "web"), ("container.id", "ccccccccccccbbbb")],
            &[
                ("undercurrent.workload.unit", "dbus.service"),
                ("service.instance.id", "0f4c1f6e-3b1d-5c0a-8e7b-1f6d1e1a2b3c"),
            ],
            &[
                ("undercurrent.workload.unit", "dbus.service"),
                ("service.instance.id", "9a4c1f6e-3b1d-5c0a-8e7b-1f6d1e1a2b3c"),
            ],
        ]);
        let texts: Vec<&str> = named.iter().map(|(text, _)| text.as_str()).collect();
        let expected = [
            "web (aaaaaaaaaaaa)",
            "db",
            "web (cccccccccccc)",
            "dbus.service (0f4c1f6e-3b1)",
            "dbus.service (9a4c1f6e-3b1)",
        ];
        assert_eq!(texts, expected);
    }
}
