//! The manual page, from the definition of the command line.

use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

/// Returns one page in the format of man(7) with all commands, because readers search one page for an option.
pub fn page(command: clap::Command) -> String {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let man = Man::new(command.clone());
    let [title, name, synopsis, options] =
        [Man::render_title, Man::render_name_section, Man::render_synopsis_section, Man::render_options_section]
            .map(|render| rendered(|text| render(&man, text)));
    let more = more(&command, "SH");
    let commands: String = command.get_subcommands().map(|command| section(command, "undercurrent")).collect();
    [title, name, synopsis, options, more, commands].concat()
}

/// Returns a section about a command, and sections about its subcommands.
fn section(command: &clap::Command, parent: &str) -> String {
    let name = format!("{parent} {}", command.get_name());
    let mut heading = Roff::new();
    heading.control("SH", [name.as_str()]);
    let man = Man::new(command.clone());
    let parts = [Man::render_synopsis_section, Man::render_description_section, Man::render_options_section]
        .map(|render| rendered(|text| render(&man, text)).replace(".SH ", ".SS "));
    let below: String = command.get_subcommands().map(|command| section(command, &name)).collect();
    [heading.render(), parts.concat(), more(command, "SS"), below].concat()
}

/// Returns the text after a command's options. A first line that ends with a colon becomes a heading.
fn more(command: &clap::Command, level: &str) -> String {
    let mut roff = Roff::new();
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for block in text.split("\n\n") {
        match block.split_once(":\n") {
            Some((heading, lines)) => {
                roff.control(level, [heading.to_uppercase().as_str()]).control("nf", []);
                lines.lines().for_each(|line| _ = roff.text([roman(line.trim_start())]));
                roff.control("fi", []);
            }
            None => _ = roff.control("PP", []).text([roman(block)]),
        }
    }
    roff.render()
}

fn rendered(render: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writes to a vector cannot fail.
    _ = render(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
