//! Rules for the generated dashboards: those of dashboard-linter as far as they apply, and this project's own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use undercurrent::catalogue::dashboards::files;

use super::{
    names::{Names, text},
    tokens::{Token, tokens},
};

/// The panel with text, which has no data.
const TEXT: &str = "text";

/// Returns every query of dashboards, with the titles of its dashboard and panel.
pub fn queries(files: &[(String, String)]) -> Vec<(String, String)> {
    parse(files).iter().flat_map(of_dashboard).collect()
}

fn of_dashboard(dashboard: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for panel in panels(dashboard).filter(|panel| panel["datasource"]["type"] == "prometheus") {
        let targets = panel["targets"].as_array().into_iter().flatten();
        all.extend(targets.map(|target| (title(panel), string(&target["expr"]))));
    }
    all
}

fn parse(files: &[(String, String)]) -> Vec<Value> {
    files.iter().map(|(_, json)| serde_json::from_str(json).expect("JSON")).collect()
}

fn generated() -> Vec<Value> {
    parse(&files(&text("docs/reading.md")))
}

/// Returns the panels without rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().into_iter().flatten().filter(|panel| panel["type"] != "row")
}

fn title(panel: &Value) -> String {
    string(&panel["title"])
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[test]
fn every_panel_has_title_description_unit_and_link() {
    let anchors = Anchors::default();
    for dashboard in generated() {
        let mut titles = BTreeSet::new();
        for panel in panels(&dashboard) {
            let name = title(panel);
            assert!(titles.insert(name.clone()) && !name.is_empty(), "{name} occurs twice");
            assert!(string(&panel["description"]).ends_with('.'), "{name} has no description");
            anchors.assert_exists(&string(&panel["links"][0]["url"]));
            if panel["type"] == TEXT {
                assert!(string(&panel["options"]["content"]).starts_with("| observation | likely cause |"), "{name}");
                continue;
            }
            let has_unit = !string(&panel["fieldConfig"]["defaults"]["unit"]).is_empty();
            // Jaeger sends its units.
            assert!(has_unit || panel["datasource"]["type"] == "jaeger", "{name} has no unit");
            assert!(!panel["targets"].as_array().expect("targets").is_empty(), "{name} has no query");
        }
    }
}

#[test]
fn every_query_uses_the_variables() {
    for dashboard in generated() {
        let variables: Vec<String> = dashboard["templating"]["list"]
            .as_array()
            .expect("variables")
            .iter()
            .map(|one| string(&one["name"]))
            .collect();
        assert_eq!(variables[..2], ["datasource", "host"], "{variables:?}");
        for panel in panels(&dashboard).filter(|panel| panel["type"] != TEXT) {
            let source = if panel["datasource"]["type"] == "jaeger" { "traces" } else { "datasource" };
            assert!(variables.iter().any(|name| name == source), "{}: {variables:?}", title(panel));
            let source = format!("${{{source}}}");
            assert_eq!(panel["datasource"]["uid"], source, "{}", title(panel));
            for target in panel["targets"].as_array().expect("targets") {
                assert_eq!(target["datasource"], panel["datasource"], "{}", title(panel));
            }
        }
        for (title, query) in of_dashboard(&dashboard) {
            let count = |sign| tokens(&query).iter().filter(|token| **token == Token::Sign(sign)).count();
            assert_eq!(query.matches(r#"host_name=~"$host""#).count(), count('{'), "{title} has a fixed host: {query}");
            assert_eq!(query.matches("[$__rate_interval]").count(), count('['), "{title} has a fixed range: {query}");
            for used in
                query.split('$').skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
            {
                let used = used.unwrap_or_default();
                let known =
                    used.is_empty() || used.starts_with("__") || used.chars().all(|digit| digit.is_ascii_digit());
                assert!(known || variables.iter().any(|one| one == used), "{title}: no variable {used}");
            }
        }
    }
}

#[test]
fn counters_and_histograms_have_a_rate() {
    let names = Names::read();
    for (title, query) in generated().iter().flat_map(of_dashboard) {
        for (place, _) in query.match_indices('{') {
            let before = &query[..place];
            let start =
                before.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').map_or(0, |end| end + 1);
            let (before, metric) = before.split_at(start);
            // The number of CPUs is the number of series.
            let is_good = ["rate(", "increase(", "count by (host_name) ("].iter().any(|call| before.ends_with(call));
            assert!(is_good || !names.is_cumulative(metric), "{title}: {metric} needs a rate in {query}");
        }
    }
}

#[test]
fn links_lead_to_dashboards() {
    let dashboards = generated();
    let uids: BTreeSet<String> = dashboards.iter().map(|dashboard| string(&dashboard["uid"])).collect();
    assert_eq!(uids.len(), dashboards.len());
    let mut links = 0;
    for dashboard in &dashboards {
        assert_eq!(dashboard["links"][0]["tags"], dashboard["tags"], "the list of dashboards");
        assert!((39..=42).contains(&dashboard["schemaVersion"].as_u64().expect("a version")));
        for link in panels(dashboard).filter_map(|panel| panel["fieldConfig"]["defaults"]["links"][0]["url"].as_str()) {
            let uid = link.strip_prefix("/d/").and_then(|rest| rest.split('?').next()).expect("a dashboard");
            assert!(uids.contains(uid), "{link}");
            links += 1;
        }
    }
    assert!(links > 3, "{links} links to the dashboard of a workload");
}

#[test]
fn panels_do_not_overlap() {
    for dashboard in generated() {
        let mut cells = BTreeSet::new();
        for panel in dashboard["panels"].as_array().expect("panels") {
            let [h, w, x, y] = ["h", "w", "x", "y"].map(|key| panel["gridPos"][key].as_u64().expect("a number"));
            assert!(x + w <= 24, "{}", panel["title"]);
            for cell in (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y))) {
                assert!(cells.insert(cell), "{} lies on another panel", panel["title"]);
            }
        }
    }
}

/// Headings of the documentation.
#[derive(Default)]
pub struct Anchors(std::cell::RefCell<BTreeMap<String, BTreeSet<String>>>);

impl Anchors {
    /// Panics unless the page and the heading of a URL exist.
    pub fn assert_exists(&self, url: &str) {
        let (_, path) = url.split_once("/blob/main/").expect("a file of the repository");
        let (page, anchor) = path.split_once('#').unwrap_or((path, ""));
        let mut pages = self.0.borrow_mut();
        let anchors = pages.entry(page.to_owned()).or_insert_with(|| anchors(&text(page)));
        assert!(anchor.is_empty() || anchors.contains(anchor), "{url}: {page} has only {anchors:?}");
    }
}

/// Returns the anchors of a page's headings, as GitHub derives them.
fn anchors(page: &str) -> BTreeSet<String> {
    let heading = |line: &str| Some(line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?.to_lowercase());
    let anchor = |text: String| {
        text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    page.lines().filter_map(heading).map(anchor).collect()
}
