//! The OpenTelemetry resource of the node and of each workload.

use std::collections::BTreeMap;

use opentelemetry::KeyValue;
use opentelemetry_sdk::{Resource as SdkResource, resource::ResourceDetector};
use percent_encoding::percent_decode_str;
use uuid::{Uuid, uuid};

use super::{Attributes, SCHEMA_URL, Value};
use crate::{
    environment::{Environment, Ignored, value},
    node::Node,
};

/// The UUID namespace that the semantic conventions define for instance ids derived from a stable id.
pub const INSTANCE_NAMESPACE: Uuid = uuid!("4d63009a-8d0f-11ee-aad7-4c796ed8e320");

/// The detected attributes of a node, each with its source.
pub const NODE_ATTRIBUTES: [(&str, &str); 12] = [
    ("service.name", "`undercurrent`"),
    ("service.version", "the version of Undercurrent"),
    (
        "service.instance.id",
        "a UUIDv5 of `host.id` and of the name of the node (`k8s.node.name`, else `host.name`); stable across restarts",
    ),
    ("host.name", "`uname`; in a container `/etc/hostname` of the host, else `k8s.node.name`, or absent"),
    ("host.id", "`/etc/machine-id` of the host"),
    ("host.arch", "`uname`"),
    ("os.type", "`linux`"),
    ("os.name", "`NAME` of the host's os-release"),
    ("os.version", "`VERSION_ID` of the host's os-release"),
    ("os.description", "`PRETTY_NAME` of the host's os-release, and the release of the kernel"),
    ("os.build_id", "`BUILD_ID` of the host's os-release, else the release of the kernel"),
    ("k8s.node.name", "`K8S_NODE_NAME`, else `NODE_NAME`"),
];

/// The variable with attributes of the node.
pub const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// The variable with the name of the node's service.
pub const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

/// The entity that measurements describe: the node, or a workload on the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Resource attributes of the semantic conventions.
    pub attributes: Attributes,
}

impl Resource {
    /// Returns the node's resource (semantic conventions 1.44) and the environment variables that cannot be parsed.
    ///
    /// The order of precedence, highest first: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `configured` (the
    /// file's `resource.attributes`), and detected values. `service.instance.id` is a UUIDv5 in [`INSTANCE_NAMESPACE`].
    /// It derives from the first available of `host.id`, `k8s.node.name` and `host.name`, and so survives restarts.
    #[must_use]
    pub fn node(
        node: &Node,
        configured: &BTreeMap<String, String>,
        environment: Environment<'_>,
    ) -> (Self, Vec<Ignored>) {
        let (listed, ignored) = listed(environment);
        // Later detectors take precedence.
        let detectors: [Box<dyn ResourceDetector>; 3] = [
            Box::new(NodeDetector(node.clone())),
            Box::new(ListDetector(configured.clone().into_iter().collect())),
            Box::new(ListDetector(listed)),
        ];
        let mut attributes = in_order(&SdkResource::builder_empty().with_detectors(&detectors).build());
        if attributes.get("service.instance.id").is_none() {
            // In a container that cannot read the host's files, the id is the container's.
            let id = host_key(&attributes).unwrap_or_else(|| node.kernel.node_name.clone());
            attributes.set("service.instance.id", instance_id(id.as_bytes()));
        }
        (Self { attributes }, ignored.into_iter().collect())
    }

    /// Returns the resource in the type of the OpenTelemetry SDK.
    #[must_use]
    pub fn to_sdk(&self) -> SdkResource {
        SdkResource::builder_empty().with_schema_url(self.attributes.key_values(), SCHEMA_URL).build()
    }
}

/// Returns the attributes of an unordered resource: those of [`NODE_ATTRIBUTES`] in its order, then the others by key.
fn in_order(resource: &SdkResource) -> Attributes {
    let position = |key: &str| NODE_ATTRIBUTES.iter().position(|(known, _)| *known == key).unwrap_or(usize::MAX);
    let mut pairs: Vec<_> = resource.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    pairs.sort_by(|(a, _), (b, _)| position(a).cmp(&position(b)).then_with(|| a.cmp(b)));
    pairs.into_iter().fold(Attributes::new(), |attributes, (key, value)| attributes.with(key, value))
}

/// Detects the node by `uname` and files of the host. The SDK and its contributed packages have no detector that reads the
/// files of the host from a container.
struct NodeDetector(Node);

impl ResourceDetector for NodeDetector {
    fn detect(&self) -> SdkResource {
        SdkResource::builder_empty().with_attributes(detected(&self.0).key_values()).build()
    }
}

/// Returns attributes of the configuration or of a variable. The SDK's detector of `OTEL_RESOURCE_ATTRIBUTES` decodes no
/// percent-encoding, and accepts malformed lists (opentelemetry_sdk 0.33).
struct ListDetector(Vec<(String, String)>);

impl ResourceDetector for ListDetector {
    fn detect(&self) -> SdkResource {
        let pairs = self.0.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        SdkResource::builder_empty().with_attributes(pairs).build()
    }
}

/// Returns the resource attributes of `OTEL_RESOURCE_ATTRIBUTES`, followed by `OTEL_SERVICE_NAME`, which takes
/// precedence. Also returns the first variable if its value cannot be parsed.
pub fn listed(environment: Environment<'_>) -> (Vec<(String, String)>, Option<Ignored>) {
    let (mut listed, ignored) = match value(environment, RESOURCE_ATTRIBUTES).map(|list| parse(&list)) {
        None => (Vec::new(), None),
        Some(Ok(listed)) => (listed, None),
        Some(Err(ignored)) => (Vec::new(), Some(ignored)),
    };
    listed.extend(value(environment, SERVICE_NAME).map(|name| ("service.name".to_owned(), name)));
    (listed, ignored)
}

/// Returns a text that identifies the host of a resource: `host.id` with the name of the node, because cloned machines share
/// their `host.id`.
pub fn host_key(attributes: &Attributes) -> Option<String> {
    let text = |key: &str| attributes.get(key).map(ToString::to_string);
    let parts: Vec<String> =
        text("host.id").into_iter().chain(text("k8s.node.name").or_else(|| text("host.name"))).collect();
    (!parts.is_empty()).then(|| parts.join("\0"))
}

/// Returns the `service.instance.id` for a unique name: a UUIDv5 in [`INSTANCE_NAMESPACE`].
pub fn instance_id(name: &[u8]) -> String {
    Uuid::new_v5(&INSTANCE_NAMESPACE, name).to_string()
}

/// Returns the attributes that are detected on the node.
fn detected(node: &Node) -> Attributes {
    let (kernel, os) = (&node.kernel, &node.os);
    let description = match &os.description {
        Some(name) => format!("{name}, Linux {}", kernel.release),
        None => format!("Linux {}", kernel.release),
    };
    let host_name =
        Some(&kernel.node_name).filter(|_| kernel.is_name_of_host).or(node.kubernetes_name.as_ref()).cloned();
    let known: [(&'static str, Option<Value>); 11] = [
        ("service.name", Some("undercurrent".into())),
        ("service.version", Some(env!("CARGO_PKG_VERSION").into())),
        ("host.name", host_name.map(Value::from)),
        ("host.id", node.machine_id.clone().map(Value::from)),
        ("host.arch", Some(architecture(&kernel.machine).to_owned().into())),
        ("os.type", Some("linux".into())),
        ("os.name", os.name.clone().map(Value::from)),
        ("os.version", os.version.clone().map(Value::from)),
        ("os.description", Some(description.into())),
        // The conventions use the kernel release as the Linux fallback. Most distributions define no BUILD_ID.
        ("os.build_id", Some(os.build_id.as_ref().unwrap_or(&kernel.release).clone().into())),
        ("k8s.node.name", node.kubernetes_name.clone().map(Value::from)),
    ];
    let mut attributes = Attributes::new();
    for (key, value) in known {
        if let Some(value) = value.filter(|value| *value != Value::from("")) {
            attributes.set(key, value);
        }
    }
    attributes
}

/// Converts an architecture name of `uname` to the name of the semantic conventions, an open enumeration.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "i386" | "i486" | "i586" | "i686" => "x86",
        "ppc64le" => "ppc64",
        "ppc" => "ppc32",
        arm if arm.starts_with("armv") => "arm32",
        other => other,
    }
}

/// Parses `key=value,key=value` with percent-encoded keys and values. The specification discards the whole list on one
/// error.
fn parse(list: &str) -> Result<Vec<(String, String)>, Ignored> {
    let members = list.split(',').map(str::trim).filter(|member| !member.is_empty());
    let pairs = members.map(|member| {
        let (key, value) = member.split_once('=').ok_or_else(|| format!("`{member}` has no `=`"))?;
        let (key, value) = (decode(key.trim())?, decode(value.trim())?);
        if key.is_empty() { Err(format!("`{member}` has no key")) } else { Ok((key, value)) }
    });
    pairs.collect::<Result<_, String>>().map_err(|what| Ignored {
        variable: RESOURCE_ATTRIBUTES,
        value: list.to_owned(),
        problem: format!("{what}; write `key=value,key=value` and percent-encode other characters"),
    })
}

fn decode(text: &str) -> Result<String, String> {
    let mistake = || format!("`{text}` is not percent-encoded UTF-8");
    let digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    // The decoder accepts a `%` without two hexadecimal digits.
    if !text.split('%').skip(1).all(digits) {
        return Err(mistake());
    }
    percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| mistake())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::node::{Kernel, OsRelease};

    fn node() -> Node {
        Node {
            kernel: Kernel {
                node_name: "node-1".to_owned(),
                is_name_of_host: true,
                release: "6.1.0-18-amd64".to_owned(),
                machine: "x86_64".to_owned(),
            },
            machine_id: Some("3d1219c7c4c5404aaa1f6d2a48adfda4".to_owned()),
            os: OsRelease {
                name: Some("Debian GNU/Linux".to_owned()),
                version: Some("12".to_owned()),
                description: Some("Debian GNU/Linux 12 (bookworm)".to_owned()),
                build_id: None,
            },
            kubernetes_name: Some("worker-1".to_owned()),
        }
    }

    fn resource(node: &Node, configured: &[(&str, &str)], variables: &[(&str, &str)]) -> (Resource, Vec<Ignored>) {
        let configured = configured.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let environment =
            |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned());
        Resource::node(node, &configured, &environment)
    }

    fn attribute(resource: &Resource, key: &str) -> Option<String> {
        resource.attributes.get(key).map(ToString::to_string)
    }

    fn listing(resource: &Resource) -> String {
        resource.attributes.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
    }

    #[test]
    fn a_resource_holds_every_detected_attribute() {
        insta::assert_snapshot!(listing(&resource(&node(), &[], &[]).0).replace(env!("CARGO_PKG_VERSION"), "VERSION"), @"
        service.name=undercurrent
        service.version=VERSION
        host.name=node-1
        host.id=3d1219c7c4c5404aaa1f6d2a48adfda4
        host.arch=amd64
        os.type=linux
        os.name=Debian GNU/Linux
        os.version=12
        os.description=Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64
        os.build_id=6.1.0-18-amd64
        k8s.node.name=worker-1
        service.instance.id=3996e123-39ee-563c-a75e-7fecb7985cc6
        ");
    }

    #[test]
    fn every_detected_attribute_has_a_source() {
        let keys = |attributes: &mut dyn Iterator<Item = &str>| -> BTreeSet<String> {
            attributes.map(str::to_owned).collect()
        };
        let (resource, _) = resource(&node(), &[], &[]);
        let detected = keys(&mut resource.attributes.iter().map(|(key, _)| key));
        assert_eq!(detected, keys(&mut NODE_ATTRIBUTES.into_iter().map(|(key, _)| key)));
    }

    #[test]
    fn unknown_attributes_are_omitted() {
        let unknown = Node { machine_id: None, os: OsRelease::default(), kubernetes_name: None, ..node() };
        insta::assert_snapshot!(
            listing(&resource(&unknown, &[], &[]).0).replace(env!("CARGO_PKG_VERSION"), "VERSION"),
            @"
        service.name=undercurrent
        service.version=VERSION
        host.name=node-1
        host.arch=amd64
        os.type=linux
        os.description=Linux 6.1.0-18-amd64
        os.build_id=6.1.0-18-amd64
        service.instance.id=5b4e05aa-518b-5b01-9a05-08462269eec4
        "
        );
    }

    #[test]
    fn environment_overrides_file_and_file_overrides_detection() {
        let configured = [("host.name", "file"), ("deployment.environment.name", "file"), ("team", "file")];
        let list = "deployment.environment.name=environment,service.name=listed";
        let (listed, _) = resource(&node(), &configured, &[(RESOURCE_ATTRIBUTES, list)]);
        assert_eq!(attribute(&listed, "host.name").as_deref(), Some("file"));
        assert_eq!(attribute(&listed, "team").as_deref(), Some("file"));
        assert_eq!(attribute(&listed, "deployment.environment.name").as_deref(), Some("environment"));
        assert_eq!(attribute(&listed, "service.name").as_deref(), Some("listed"));
        let variables = [(RESOURCE_ATTRIBUTES, list), (SERVICE_NAME, "named")];
        assert_eq!(attribute(&resource(&node(), &[], &variables).0, "service.name").as_deref(), Some("named"));
    }

    #[test]
    fn the_instance_id_follows_the_id_and_the_name_of_the_host() {
        let instance = |node: &Node, list: &str| {
            attribute(&resource(node, &[], &[(RESOURCE_ATTRIBUTES, list)]).0, "service.instance.id").expect("an id")
        };
        let whole = instance(&node(), "");
        let named = |name: &str, is_name_of_host| {
            let kernel = Kernel { node_name: name.to_owned(), is_name_of_host, ..node().kernel };
            instance(&Node { kernel, kubernetes_name: None, ..node() }, "")
        };
        assert_ne!(named("node-1", true), named("node-2", true), "a cloned machine has the id of the other");
        assert_eq!(named("a1b2", false), named("c3d4", false), "each container has a new name");
        let anonymous = Node { machine_id: None, ..node() };
        let nameless = Node { kubernetes_name: None, ..anonymous.clone() };
        assert_ne!(instance(&anonymous, ""), instance(&nameless, ""));
        assert_eq!(instance(&anonymous, "host.id=3d1219c7c4c5404aaa1f6d2a48adfda4"), whole);
        assert_eq!(instance(&node(), "service.instance.id=mine"), "mine");
    }

    #[test]
    fn one_malformed_member_discards_the_list_with_a_warning() {
        let warnings = ["a=b,c", "=b", "a=%zz", "a=%e", "a=%ff", "%=b"].map(|list| {
            let (resource, ignored) = resource(&node(), &[], &[(RESOURCE_ATTRIBUTES, list)]);
            assert_eq!(attribute(&resource, "a"), None);
            ignored.iter().map(ToString::to_string).collect::<String>()
        });
        insta::assert_snapshot!(warnings.join("\n"), @"
        OTEL_RESOURCE_ATTRIBUTES=`a=b,c` is ignored: `c` has no `=`; write `key=value,key=value` and percent-encode other characters
        OTEL_RESOURCE_ATTRIBUTES=`=b` is ignored: `=b` has no key; write `key=value,key=value` and percent-encode other characters
        OTEL_RESOURCE_ATTRIBUTES=`a=%zz` is ignored: `%zz` is not percent-encoded UTF-8; write `key=value,key=value` and percent-encode other characters
        OTEL_RESOURCE_ATTRIBUTES=`a=%e` is ignored: `%e` is not percent-encoded UTF-8; write `key=value,key=value` and percent-encode other characters
        OTEL_RESOURCE_ATTRIBUTES=`a=%ff` is ignored: `%ff` is not percent-encoded UTF-8; write `key=value,key=value` and percent-encode other characters
        OTEL_RESOURCE_ATTRIBUTES=`%=b` is ignored: `%` is not percent-encoded UTF-8; write `key=value,key=value` and percent-encode other characters
        ");
    }

    #[test]
    fn lists_are_decoded() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            parse(" a = b%2Cc , d=%C3%A4%3d,e=,f=g=h, "),
            Ok(vec![pair("a", "b,c"), pair("d", "ä="), pair("e", ""), pair("f", "g=h")])
        );
    }

    proptest! {
        #[test]
        fn every_list_is_read_or_refused(list in "[ -~äß%,=]{0,40}") {
            let _ = parse(&list);
        }

        #[test]
        fn encoded_pairs_read_back(pairs in proptest::collection::vec(("[!-~ä]{1,8}", "[!-~ä ]{0,8}"), 0..4)) {
            let encode = |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
            let list: Vec<String> = pairs.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
            prop_assert_eq!(parse(&list.join(",")), Ok(pairs));
        }
    }
}
