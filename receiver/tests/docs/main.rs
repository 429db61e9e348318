//! Checks the documentation: links, commands, configuration snippets, and tables that list names of the code.

mod commands;
#[cfg(feature = "kubernetes")]
#[path = "../support/documents.rs"]
mod documents;
#[cfg(feature = "kubernetes")]
mod examples;
mod page;

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use page::{Page, files, page, pages, read};
use serde_json::Value;
use undercurrent::{
    config::{File, schema},
    signals::catalogue,
};

/// Returns a path without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, component| {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
        normal
    })
}

/// Returns the reason why a link of a page does not resolve. Addresses of other sites are not followed.
fn broken(link: &str, from: &Page, pages: &[Page]) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match target {
        "" => from.path.clone(),
        relative => normal(&from.path.parent().expect("a folder").join(relative)),
    };
    if !page::checkout().join(&target).exists() {
        return Some("no such file");
    }
    let page = pages.iter().find(|page| page.path == target);
    let found = anchor.is_empty() || page.is_some_and(|page| page.anchors.contains(anchor));
    (!found).then_some("no such heading")
}

#[test]
fn every_link_resolves() {
    let pages = pages();
    let links = pages.iter().flat_map(|page| page.links.iter().map(move |link| (page, link)));
    let broken: Vec<String> = links
        .filter_map(|(page, link)| Some(format!("{}: {link}: {}", page.path.display(), broken(link, page, &pages)?)))
        .collect();
    assert_eq!(broken, [""; 0]);
}

/// An unescaped `|` in code ends the cell, and a part of the code is in the next one.
#[test]
fn code_in_tables_is_closed() {
    for page in pages() {
        let open = page.tables.iter().flatten().flatten().find(|cell| cell.contains('`'));
        assert_eq!(open, None, "{}", page.path.display());
    }
}

#[test]
fn missing_files_and_headings_are_found() {
    let page = Page::parse(Path::new("docs/install.md"), "# Memory\n");
    let pages = [page];
    let reason = |link| broken(link, &pages[0], &pages);
    assert_eq!((reason("#memory"), reason("install.md#memory"), reason("../README.md")), (None, None, None));
    assert_eq!((reason("none.md"), reason("#none")), (Some("no such file"), Some("no such heading")));
}

/// Every page is reachable from the README in at most two steps.
#[test]
fn every_page_is_linked() {
    let pages = pages();
    let linked = |page: &Page| -> BTreeSet<PathBuf> {
        let files = page.links.iter().map(|link| link.split('#').next().unwrap_or_default());
        files.map(|file| normal(&page.path.parent().expect("a folder").join(file))).collect()
    };
    let readme = linked(&page("README.md"));
    let below = pages.iter().filter(|page| readme.contains(&page.path)).flat_map(linked);
    let reached: BTreeSet<PathBuf> = below.chain(readme.clone()).collect();
    let fixtures = Path::new("receiver");
    let missing = pages.iter().map(|page| &page.path).filter(|path| !reached.contains(*path));
    let missing: Vec<_> = missing.filter(|path| !path.starts_with(fixtures) && !path.ends_with("README.md")).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns the listed values of a metric's attribute. Descriptions of other values contain spaces.
fn values(metric: &str, key: &str) -> BTreeSet<String> {
    let metric = catalogue().map(|(_, known)| known).find(|known| known.name == metric).expect("the metric");
    let attribute = metric.attributes.iter().find(|attribute| attribute.key == key).expect("the attribute");
    attribute.values().into_iter().filter(|value| !value.contains(' ')).map(String::from).collect()
}

#[test]
fn every_reason_of_lost_has_cause_and_remedy() {
    let reasons = values("undercurrent.lost", "undercurrent.reason");
    let page = page("docs/troubleshooting.md");
    let rows =
        page.tables.iter().filter(|table| table[0] == ["reason", "cause", "remedy"]).flat_map(|table| &table[1..]);
    let rows: Vec<&Vec<String>> = rows.collect();
    let incomplete = rows.iter().find(|row| row.len() != 3 || row.iter().any(String::is_empty));
    assert_eq!(incomplete, None);
    let explained: BTreeSet<String> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(explained, reasons);
    assert_eq!(explained.len(), rows.len(), "a reason has two rows");
}

#[test]
fn every_hook_is_explained() {
    for path in ["docs/troubleshooting.md", "docs/internals/kernels.md"] {
        let page = page(path);
        let rows = page.tables.iter().filter(|table| table[0][0] == "hook").flat_map(|table| &table[1..]);
        let words: BTreeSet<String> = rows.flat_map(|row| row[0].split([',', ' '])).map(String::from).collect();
        let missing: Vec<_> =
            values("undercurrent.hook.status", "undercurrent.hook").difference(&words).cloned().collect();
        assert_eq!(missing, [""; 0], "{path}");
    }
}

/// The statements about compromised parts name tests that exist.
#[test]
fn every_statement_about_security_has_a_test() {
    let sources: String = files("receiver").iter().filter(|path| is_rust(path)).map(|path| read(path)).collect();
    let page = page("docs/security.md");
    let rows = page.tables.iter().filter(|table| table[0] == ["statement", "tests"]).flat_map(|table| &table[1..]);
    let mut count = 0;
    for row in rows {
        for test in row[1].split(", ") {
            assert!(sources.contains(&format!("fn {test}()")), "{}: no test has the name `{test}`", row[0]);
        }
        count += 1;
    }
    assert!(count > 10, "{count} statements");
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

#[test]
fn every_metric_is_explained() {
    let page = page("docs/reading.md");
    let missing = catalogue().map(|(_, metric)| metric.name).find(|name| !page.spans.iter().any(|span| span == name));
    assert_eq!(missing, None);
}

/// Every figure in the README's table of costs is on a page that the table links.
#[test]
fn costs_in_the_readme_are_those_of_the_pages() {
    let costs = page("README.md").tables.into_iter().find(|table| table[0] == ["resource", "cost", "details"]);
    let pages = ["docs/overhead.md", "docs/install.md", "docs/reading.md"].map(|path| read(Path::new(path)));
    let figures = |text: &str| -> BTreeSet<String> {
        let words = text.split([' ', ',', ';', '(', ')', '|', '\n', '*']).map(|word| word.trim_end_matches(['.', ':']));
        words.filter(|word| word.starts_with(|first: char| first.is_ascii_digit())).map(String::from).collect()
    };
    let known: BTreeSet<String> = pages.iter().flat_map(|page| figures(page)).collect();
    let stated: BTreeSet<String> = costs.expect("the table")[1..].iter().flat_map(|row| figures(&row[1])).collect();
    assert!(stated.len() > 5);
    assert_eq!(stated.difference(&known).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_command_is_accepted() {
    let mut calls = 0;
    for page in pages() {
        let origin = page.path.display().to_string();
        let scripts = page.blocks.iter().filter(|block| block.language == "sh").map(|block| &block.text);
        calls += scripts.map(|script| commands::check(script, &origin)).sum::<usize>();
        let spans = page.spans.iter().filter(|span| span.starts_with("undercurrent "));
        calls += spans.map(|span| commands::check(span, &origin)).sum::<usize>();
    }
    // The pages name every subcommand several times: fewer calls mean that the search for them fails.
    assert!(calls > 20, "{calls} calls");
}

/// The languages of code blocks that no test reads.
const UNCHECKED: [&str; 3] = ["text", "mermaid", "promql"];
/// Top-level keys of Kubernetes, Compose, the collector and Prometheus.
const FOREIGN: [&str; 8] =
    ["apiVersion", "services", "receivers", "processors", "exporters", "groups", "scrape_configs", "storage"];

/// Returns the documents of a YAML text.
fn yaml(text: &str, origin: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{origin}: {error}"))
}

fn check_configuration(text: &str, origin: &str) {
    if let Err(error) = File::parse(Path::new(origin), text.as_bytes()) {
        panic!("{error}");
    }
}

#[test]
fn every_configuration_is_accepted() {
    let mut configurations = 0;
    for page in pages() {
        let origin = page.path.display().to_string();
        for block in &page.blocks {
            match &*block.language {
                "sh" => {}
                "yaml" => {
                    let documents = yaml(&block.text, &origin);
                    if !FOREIGN.iter().any(|key| documents.iter().any(|document| document.get(key).is_some())) {
                        check_configuration(&block.text, &origin);
                        configurations += 1;
                    }
                }
                language => assert!(UNCHECKED.contains(&language), "{origin}: a block of the language {language:?}"),
            }
        }
    }
    assert!(configurations > 2, "{configurations} configurations");
}

/// The schema has every dotted key that a sentence names, for example `signals.NAME.enabled`.
#[test]
fn every_named_key_exists() {
    let schema = schema();
    let exists = |key: &str| {
        key.split('.').try_fold(&schema, |object, key| {
            let properties = object["properties"].as_object()?;
            if key == "NAME" { properties.values().next() } else { properties.get(key) }
        })
    };
    let sections = ["otlp.", "hooks.", "workloads.", "packets.", "signals."];
    for page in pages() {
        for span in page.spans.iter().filter(|span| sections.iter().any(|section| span.starts_with(section))) {
            let key = span.split(&[':', ' ', '='][..]).next().unwrap_or_default();
            // Prometheus has settings with this prefix too.
            if key.starts_with("otlp.") && page.path.ends_with("prometheus.md") {
                continue;
            }
            assert!(exists(key).is_some(), "{}: no key `{span}`", page.path.display());
        }
    }
}
