//! Text of a container runtime that a terminal or a log reader would interpret.

use std::{collections::BTreeSet, fs};

use crate::{
    outputs::run,
    support::{
        containers::{id, of_root},
        line::Line,
        player::Player,
        runtime::{Runtime, container, with_private_run},
        surroundings::alone,
        tree::Tree,
    },
};

/// Clears the screen, begins a line, and reverses the direction of writing.
const NAME: &str = "evil\u{1b}[2J\u{9b}31m\r\nERROR forged\u{202e}\u{2066}\u{200b}\u{7f}\0";

fn is_harmless(c: char) -> bool {
    let is_hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c == '\n' || !c.is_control() && !is_hidden
}

#[test]
fn a_container_s_name_reaches_no_output_unescaped() {
    const TEST: &str = "text of a runtime";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    with_private_run(|| {
        let _runtime = Runtime::listen("/run/docker.sock", 0, |path| Some(container(path, NAME)));
        let _player = Player::start("echo", &tree.make(&of_root(&id(1))), &[]);
        let folder = tempfile::tempdir().unwrap();
        let lines = folder.path().join("lines");
        let output = format!("json={}", lines.display());
        let arguments = ["--output", "table", "--output", &output, "--interval", "1s", "--duration", "3s"];
        let ended = run(&arguments, &[("RUST_LOG", "undercurrent=debug")]);
        let [table, log] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(ended.status.success(), "{log}");
        let lines = Line::all(&fs::read_to_string(lines).unwrap());
        let points = lines.iter().flat_map(|line| &line.points);
        let texts: BTreeSet<&str> = points
            .flat_map(|point| point.resource.values().chain(point.attributes.values()))
            .map(String::as_str)
            .collect();
        assert!(texts.iter().any(|text| text.contains("forged")), "the name did not arrive: {texts:?}");
        for text in texts {
            assert!(text.chars().all(|c| is_harmless(c) && c != '\n'), "{text:?}");
        }
        for (output, text) in [("table", &table), ("log", &log)] {
            let harmful: Vec<&str> = text.lines().filter(|line| !line.chars().all(is_harmless)).collect();
            assert!(harmful.is_empty(), "{output}: {harmful:?}");
            assert!(text.lines().all(|line| !line.starts_with("ERROR forged")), "{output}");
        }
    });
}
