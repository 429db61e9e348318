//! The screen of the sidecar in a real pseudo-terminal.

use rustix::process::Signal;

use super::support::{
    pty::Pty,
    sidecar::{BINARY, command},
    surroundings::{alone, often},
};

fn start() -> Pty {
    let mut sidecar = command(BINARY);
    sidecar.args(["run", "--output", "table", "--interval", often()]);
    let screen = Pty::start(sidecar, (24, 80));
    screen.shows("an interval", |text| text.contains("over "));
    assert!(screen.is_alternate(), "the shell's screen must stay as it is");
    screen
}

#[test]
fn keys_change_the_page_until_one_ends_the_sidecar() {
    let Some(_alone) = alone("keys of the screen") else { return };
    let mut screen = start();
    screen.press("2");
    screen.shows("the CPU time", |text| text.contains("cpu.time  CPU time used"));
    screen.press("6");
    screen.shows("the page of the sidecar", |text| text.contains("process.memory.usage"));
    screen.resize(40, 120);
    screen.shows("the keys in the last line of the larger screen", |text| {
        text.lines().nth(39).is_some_and(|line| line.starts_with("? help"))
    });
    screen.resize(12, 60);
    screen.shows("the keys in the last line of the smaller screen", |text| {
        text.lines().nth(11).is_some_and(|line| line.starts_with("? help"))
    });
    screen.press("?");
    screen.shows("the help", |text| text.contains("pause; again: continue"));
    screen.press("?1p");
    screen.shows("the pause", |text| text.contains("paused"));
    screen.press("q");
    assert!(screen.wait().success());
    screen.assert_restored();
    // The log waited for the end of the screen.
    screen.shows("the log", |text| text.contains("delivered"));
}

#[test]
fn the_terminal_is_restored_after_ctrl_c_and_sigterm() {
    let Some(_alone) = alone("the end of the screen") else { return };
    let ends: [&dyn Fn(&mut Pty); 2] = [&|screen| screen.press("\x03"), &|screen| screen.signal(Signal::TERM)];
    for end in ends {
        let mut screen = start();
        end(&mut screen);
        assert!(screen.wait().success());
        screen.assert_restored();
    }
}
