//! Checks the order of the modules: a module uses only modules before it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Every module of the library, after the modules that it uses.
const ORDER: [&str; 32] = [
    "causes",
    "descriptors",
    "exit",
    "files",
    "environment",
    "text",
    "traceparent",
    "channel",
    "namespaces",
    "node",
    "privileges",
    "telemetry",
    "logging",
    "watchdog",
    "options",
    "sysfs",
    "cgroup",
    "kernel",
    "reader",
    "workloads",
    "signals",
    "export",
    "config",
    "outputs",
    "requirements",
    "parts",
    "sidecar",
    "doctor",
    "flamegraph",
    "cli",
    "main",
    "lib",
];

/// Returns the sources in a folder and its subfolders.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// Returns the names directly below `crate::` in a source, with and without braces.
fn uses(source: &str) -> BTreeSet<String> {
    let after = source.split("crate::").skip(1);
    after
        .flat_map(|text| if let Some(list) = text.strip_prefix('{') { of_list(list) } else { vec![name(text)] })
        .collect()
}

fn name(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// Returns the first name of each item in a list up to its closing brace.
fn of_list(list: &str) -> Vec<String> {
    let (mut depth, mut start, mut items) = (0_u32, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match (c, depth) {
            ('}', 0) => {
                items.push(&list[start..at]);
                break;
            }
            ('{', _) => depth += 1,
            ('}', _) => depth -= 1,
            (',', 0) => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.into_iter().map(name).filter(|name| !name.is_empty()).collect()
}

/// Returns a source without its tests and comments.
fn product(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn lists_of_uses_are_read() {
    let source = "use crate::{\n    kernel::{Kernel, hooks},\n    text,\n};\nfn f() { crate::node::x(); }";
    assert_eq!(uses(source), BTreeSet::from(["kernel", "node", "text"].map(str::to_owned)));
}

#[test]
fn a_module_uses_only_modules_before_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let place = |module: &str| ORDER.iter().position(|known| *known == module);
    let mut wrong: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources(&root) {
        let below = path.strip_prefix(&root).expect("below the root");
        if below
            .components()
            .any(|part| ["tests", "tests.rs", "testing.rs"].iter().any(|test| part.as_os_str() == *test))
        {
            continue;
        }
        let module = below.components().next().expect("a name").as_os_str().to_string_lossy().replace(".rs", "");
        let own = place(&module).unwrap_or_else(|| panic!("`{module}` has no place in the order"));
        let used = uses(&product(&fs::read_to_string(&path).expect("a source")));
        for other in used.iter().filter(|other| place(other).is_some_and(|place| place > own)) {
            wrong.entry(format!("{module} ({})", below.display())).or_default().insert(other.clone());
        }
    }
    assert!(wrong.is_empty(), "modules use modules after them: {wrong:#?}");
}
