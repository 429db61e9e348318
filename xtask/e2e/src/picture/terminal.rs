//! The first page of the terminal.

use std::{
    num::NonZeroU16,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use xtask_common::machine;

use crate::{
    compose::Stack,
    engines::{Client as _, Docker},
};

/// The size of the terminal.
const ROWS: NonZeroU16 = NonZeroU16::new(24).expect("not zero");
const COLUMNS: NonZeroU16 = NonZeroU16::new(100).expect("not zero");
/// Sets the size of the terminal, and runs the sidecar in its container until the second snapshot. The last snapshot covers less than an
/// interval.
const TERMINAL: &str = r#"stty cols 100 rows 24; exec /usr/bin/docker exec --interactive --tty --env RUST_LOG=off --env TERM=xterm-256color \
    "$CONTAINER" undercurrent run --output table --interval 5s --duration 12s"#;
/// The sequence that ends the screen of a program.
const END: &str = "\x1b[?1049l";

/// Returns the screen of a run beside the sidecar of the example, in its container: lines with sequences for their colours.
pub fn screen(engine: &Docker, stack: &Stack<'_>) -> anyhow::Result<String> {
    let container = machine::output(stack.compose().args(["ps", "--quiet", "sidecar"]))?.trim().to_owned();
    let mut script = Command::new("script");
    let variables = engine.client();
    script.envs(variables.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = script
        .args(["--quiet", "--return", "--command", TERMINAL, "/dev/null"])
        .env("CONTAINER", &container)
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .output()
        .context("cannot run script(1)")?;
    let shown = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "the sidecar failed:\n{shown}");
    let (before, _) = shown.rsplit_once(END).with_context(|| format!("the sidecar had no screen:\n{shown}"))?;
    let mut terminal = vt100::Parser::new(ROWS, COLUMNS, 0);
    terminal.process(before.as_bytes());
    let lines: Vec<_> = (0..ROWS.get()).map(|row| line(terminal.screen(), row)).collect();
    Ok(lines.join("\n"))
}

/// Returns a row of a screen with its colours, without sequences that move the cursor.
fn line(screen: &vt100::Screen, row: u16) -> String {
    let cells = (0..COLUMNS.get()).filter_map(|column| screen.cell(row, column));
    let text: String = cells.map(styled).collect();
    format!("{}{RESET}", text.trim_end())
}

/// The sequence that ends all styles.
const RESET: &str = "\x1b[0m";

fn styled(cell: &vt100::Cell) -> String {
    let contents = if cell.has_contents() { cell.contents() } else { " " };
    let marks = [(cell.bold(), "1"), (cell.dim(), "2"), (cell.underline(), "4"), (cell.inverse(), "7")];
    let mut codes: Vec<String> =
        marks.iter().filter(|(is_set, _)| *is_set).map(|(_, code)| (*code).to_owned()).collect();
    codes.extend(colour(cell.fgcolor(), 38));
    codes.extend(colour(cell.bgcolor(), 48));
    if codes.is_empty() { contents.to_string() } else { format!("\x1b[{}m{contents}{RESET}", codes.join(";")) }
}

/// Returns the parameters of a colour, after the number of a foreground or a background.
fn colour(colour: vt100::Color, ground: u8) -> Option<String> {
    match colour {
        vt100::Color::Default => None,
        vt100::Color::Idx(index) => Some(format!("{ground};5;{index}")),
        vt100::Color::Rgb(red, green, blue) => Some(format!("{ground};2;{red};{green};{blue}")),
    }
}
