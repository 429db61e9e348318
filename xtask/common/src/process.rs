//! Child processes: termination and bounded waits.

use std::{
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Interval between evaluations of a condition.
const POLL: Duration = Duration::from_millis(20);

/// Waits until a condition returns a value.
///
/// # Errors
/// If the deadline passes, with the name of the awaited event, or if the condition fails.
pub fn wait_for<T>(
    event: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if start.elapsed() > deadline {
            bail!("timed out after {deadline:?} waiting for {event}");
        }
        thread::sleep(POLL);
    }
}

/// Returns a limit for a test that may run in a virtual machine, whose processor is emulated.
#[must_use]
pub fn patience(native: Duration) -> Duration {
    if std::env::var_os("UNDERCURRENT_VM").is_some() { native * 10 } else { native }
}

/// Terminates a process, and kills it if it still runs after `patience`. Returns its status, also if it had already exited.
pub fn end(child: &mut Child, patience: Duration) -> anyhow::Result<ExitStatus> {
    if let Some(status) = child.try_wait().context("cannot wait for a process")? {
        return Ok(status);
    }
    // An unreaped child keeps its id, so the signal cannot reach another process.
    kill_process(Pid::from_child(child), Signal::TERM).context("cannot signal a process")?;
    if let Ok(status) = wait_for("a process to exit", patience, || Ok(child.try_wait()?)) {
        return Ok(status);
    }
    child.kill().context("cannot kill a process")?;
    child.wait().context("cannot wait for a process")
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        os::unix::process::ExitStatusExt as _,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_process_that_ignores_termination_is_killed() {
        let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        // The trap is set once the shell has printed its line.
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let status = end(&mut shell, Duration::from_millis(300)).unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn a_timeout_names_the_event() {
        let error = wait_for::<()>("rain", Duration::ZERO, || Ok(None)).unwrap_err();
        assert!(error.to_string().contains("rain"), "{error}");
    }
}
