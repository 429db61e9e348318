//! The configuration file at SIGHUP.

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    sidecar::command,
    surroundings::{alone, patience, wait_for},
};

#[test]
fn a_valid_file_is_applied_and_an_invalid_one_is_not() {
    let Some(_alone) = alone("reloads of the configuration") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, output) = (folder.path().join("config.yaml"), folder.path().join("lines"));
    // Only root may read the file and enter the folder.
    let write = |text: &str| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    };
    write("interval: 12h\n");
    let mut sidecar = command(env!("CARGO_BIN_EXE_undercurrent"));
    sidecar.args(["run", "--config"]).arg(&file).arg("--output").arg(format!("json={}", output.display()));
    let mut sidecar = sidecar.stderr(Stdio::piped()).spawn().unwrap();
    let (send, lines) = mpsc::channel();
    let log = BufReader::new(sidecar.stderr.take().unwrap());
    thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    let logged = |texts: &[&str]| {
        let contains = |line: String| texts.iter().all(|text| line.contains(text)).then_some(());
        wait_for(&format!("{texts:?} in the log"), patience(Duration::from_secs(20)), || {
            lines.try_iter().find_map(contains)
        });
    };
    let hang_up = || kill_process(Pid::from_child(&sidecar), Signal::HUP).unwrap();
    logged(&["run `undercurrent doctor` for details"]);

    write("intervall: 1s\n");
    hang_up();
    logged(&["cannot reload the configuration", "config.yaml:1:1: unknown key `intervall`"]);
    fs::remove_file(&file).unwrap();
    hang_up();
    logged(&["cannot reload the configuration", "No such file"]);

    write("interval: 100ms\nmemory_limit: 100MB\n");
    hang_up();
    logged(&["changed interval"]);
    logged(&["restart the sidecar to apply memory_limit"]);
    wait_for("snapshots at the new interval", patience(Duration::from_secs(10)), || {
        (fs::read_to_string(&output).ok()?.lines().count() >= 3).then_some(())
    });
    kill_process(Pid::from_child(&sidecar), Signal::TERM).unwrap();
    assert!(sidecar.wait().unwrap().success());
}
