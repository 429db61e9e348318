//! The capabilities that the shipped files grant to the sidecar.

use std::{fs, path::Path};

use serde_json::Value;

use super::documents::values;

/// The files with capabilities, relative to the workspace.
pub const MANIFEST: &str = "examples/kubernetes/undercurrent.yaml";
pub const UNIT: &str = "examples/systemd/undercurrent.service";
pub const COMPOSE: [&str; 2] =
    ["examples/docker-compose/docker-compose.override.yaml", "examples/docker-compose/docker-compose.restricted.yaml"];
pub const COMMANDS: &str = "docs/install.md";

/// The privileges of a sidecar that a file starts.
#[derive(Debug)]
pub struct Granted {
    pub file: &'static str,
    /// True if the sidecar runs as root, with a part of root's capabilities.
    pub as_root: bool,
    /// The names with `CAP_`.
    pub capabilities: Vec<String>,
}

/// Returns the privileges in every shipped file.
pub fn all() -> Vec<Granted> {
    let yaml = [MANIFEST].into_iter().chain(COMPOSE).map(|file| {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&read(file)).unwrap();
        let lists = documents.iter().flat_map(|document| ["add", "cap_add"].map(|key| values(document, key))).flatten();
        let names = lists.flat_map(|list| list.as_array().unwrap()).map(|name| full(name.as_str().unwrap())).collect();
        Granted { file, as_root: true, capabilities: names }
    });
    let unit = read(UNIT);
    let ambient = unit.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).unwrap();
    let unit = Granted { file: UNIT, as_root: false, capabilities: ambient.split(' ').map(full).collect() };
    let commands = read(COMMANDS);
    let run = commands.split("```").find(|block| block.contains("docker run")).unwrap();
    let names = run.split("--cap-add ").skip(1).map(|rest| full(rest.split_whitespace().next().unwrap()));
    let command = Granted { file: COMMANDS, as_root: true, capabilities: names.collect() };
    yaml.chain([unit, command]).collect()
}

fn read(file: &str) -> String {
    let workspace = Path::new(env!("UNDERCURRENT_WORKSPACE"));
    fs::read_to_string(workspace.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn full(name: &str) -> String {
    format!("CAP_{}", name.trim_start_matches("CAP_"))
}
