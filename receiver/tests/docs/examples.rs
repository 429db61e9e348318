//! Checks the files in examples/ and otel-config/.

use std::path::Path;

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    serde::{Serialize, de::DeserializeOwned},
};
use serde_json::Value;
use undercurrent::{
    cli::{self, Command},
    config::Run,
    options::MemoryLimit,
};

use super::{
    check_configuration, commands,
    documents::values,
    page::{files, page, read},
    yaml,
};

const MANIFEST: &str = "examples/kubernetes/undercurrent.yaml";
const UNIT: &str = "examples/systemd/undercurrent.service";
const COMPOSE: &str = "examples/docker-compose/docker-compose.yaml";

fn document(path: &str) -> Value {
    yaml(&read(Path::new(path)), path).swap_remove(0)
}

/// Checks that an object has only fields of its type, with values of their types.
fn assert_typed<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
    assert_eq!(serde_json::to_value(&typed).expect("JSON"), *object);
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().expect("a list").iter();
    items.map(|item| item.as_str().expect("a string").to_owned()).collect()
}

#[test]
fn every_file_is_yaml() {
    let is_yaml = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "yaml");
    let paths: Vec<_> = ["examples", "otel-config"].into_iter().flat_map(files).filter(is_yaml).collect();
    assert!(paths.iter().any(|path| path == Path::new(MANIFEST)));
    for path in paths {
        assert!(!yaml(&read(&path), &path.display().to_string()).is_empty());
    }
}

#[test]
fn the_manifest_has_the_types_of_the_api() {
    for object in yaml(&read(Path::new(MANIFEST)), MANIFEST) {
        match object["kind"].as_str().expect("a kind") {
            "ServiceAccount" => assert_typed::<ServiceAccount>(&object),
            "ClusterRole" => assert_typed::<ClusterRole>(&object),
            "ClusterRoleBinding" => assert_typed::<ClusterRoleBinding>(&object),
            "ConfigMap" => assert_typed::<ConfigMap>(&object),
            "DaemonSet" => assert_typed::<DaemonSet>(&object),
            kind => panic!("an object of the kind {kind}"),
        }
    }
}

#[test]
fn commands_of_the_examples_are_accepted() {
    let unit = read(Path::new(UNIT));
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/")).expect("a command");
    assert_eq!(commands::check(start, UNIT), 1);
    let manifest = yaml(&read(Path::new(MANIFEST)), MANIFEST);
    let arguments = manifest.iter().flat_map(|object| values(object, "args")).map(|list| (MANIFEST, strings(list)));
    let compose = document(COMPOSE);
    let sidecar = (COMPOSE, strings(&compose["services"]["sidecar"]["command"]));
    for (origin, arguments) in arguments.chain([sidecar]) {
        assert_eq!(commands::check(&format!("undercurrent {}", arguments.join(" ")), origin), 1);
    }
}

/// The manifest mounts its configuration where the command reads it.
#[test]
fn the_manifest_has_a_configuration() {
    let manifest = yaml(&read(Path::new(MANIFEST)), MANIFEST);
    let data = manifest.iter().find_map(|object| object.get("data")).and_then(Value::as_object).expect("a ConfigMap");
    let [(file, text)] = data.iter().collect::<Vec<_>>()[..] else { panic!("one file") };
    check_configuration(text.as_str().expect("a text"), MANIFEST);
    let mounts: Vec<&Value> = manifest.iter().flat_map(|object| values(object, "mountPath")).collect();
    let arguments = manifest.iter().flat_map(|object| values(object, "args")).flat_map(strings);
    let words = std::iter::once("undercurrent".to_owned()).chain(arguments);
    let Ok(Command::Run(Run { config: Some(config), .. })) = cli::parse(words) else { panic!("a run with a file") };
    assert_eq!(config.file_name().and_then(|name| name.to_str()), Some(&**file));
    let folder = config.parent().and_then(Path::to_str).expect("a folder");
    assert!(mounts.iter().any(|path| path.as_str() == Some(folder)));
}

/// The capabilities of the examples are in the table of docs/install.md.
#[test]
fn capabilities_are_documented() {
    let page = page("docs/install.md");
    let rows = page.tables.iter().filter(|table| table[0][0] == "capability").flat_map(|table| &table[1..]);
    let documented: String = rows.map(|row| row[0].clone() + " ").collect();
    let unit = read(Path::new(UNIT));
    let sets =
        unit.lines().filter_map(|line| line.split_once("Capabilities=").or(line.split_once("CapabilityBoundingSet=")));
    let granted = sets.flat_map(|(_, set)| set.split(' ')).map(|name| name.replace("CAP_", ""));
    let lists = ["docker-compose.yaml", "docker-compose.override.yaml", "docker-compose.restricted.yaml"]
        .map(|file| document(&format!("examples/docker-compose/{file}")));
    let manifest = yaml(&read(Path::new(MANIFEST)), MANIFEST);
    let added = lists.iter().flat_map(|file| values(file, "cap_add"));
    let added = added.chain(manifest.iter().flat_map(|object| values(object, "add"))).flat_map(strings);
    let capabilities: Vec<String> = granted.chain(added).collect();
    assert!(capabilities.len() > 20);
    for capability in capabilities {
        assert!(
            documented.contains(&format!("CAP_{capability} ")) || documented.contains(&format!("CAP_{capability},")),
            "{capability}"
        );
    }
}

/// Every page and example reserves the default limit of the maps and 64 MiB for the processes.
#[test]
fn memory_to_reserve_is_the_limit_of_the_maps_and_the_processes() {
    let mebibytes = MemoryLimit::DEFAULT.bytes() / (1 << 20) + 64;
    for (path, reserved) in [
        ("README.md", format!("reserve {mebibytes} MiB")),
        ("docs/install.md", format!("--memory {mebibytes}m")),
        (UNIT, format!("MemoryMax={mebibytes}M")),
        (MANIFEST, format!("limits: {{memory: {mebibytes}Mi}}")),
    ] {
        assert!(read(Path::new(path)).contains(&reserved), "{path}: no `{reserved}`");
    }
}
