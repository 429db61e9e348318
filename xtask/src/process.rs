//! Ending processes that a command started, waiting for what they do, and what they take.

use std::{
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Waits until a condition yields a value. Names what it waited for when the deadline passes; the condition's own
/// error ends the wait at once.
pub fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if start.elapsed() > deadline {
            bail!("waited {deadline:?} in vain for {what}");
        }
        thread::sleep(POLL);
    }
}

/// Asks a process to end, and ends it when it has not done so in time. It is no error that it ended before.
pub fn end(child: &mut Child, patience: Duration) -> anyhow::Result<ExitStatus> {
    if let Some(status) = child.try_wait().context("cannot wait for a process")? {
        return Ok(status);
    }
    // An unreaped child keeps its id, so the signal reaches nobody else.
    kill_process(Pid::from_child(child), Signal::TERM).context("cannot signal a process")?;
    if let Ok(status) = wait_for("a process to end", patience, || Ok(child.try_wait()?)) {
        return Ok(status);
    }
    child.kill().context("cannot end a process")?;
    child.wait().context("cannot wait for a process")
}

/// CPU time of all of a process's threads.
pub fn cpu_time(process: &Process) -> anyhow::Result<Duration> {
    let mut time = Duration::ZERO;
    for task in process.tasks()? {
        time += Duration::from_nanos(task?.schedstat()?.sum_exec_runtime);
    }
    Ok(time)
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
    fn a_process_that_ignores_the_request_is_ended_all_the_same() {
        let script = "trap '' TERM; echo deaf; while :; do sleep 0.01; done";
        let mut deaf = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        // Until the shell has said so, it does not ignore anything yet.
        BufReader::new(deaf.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let status = end(&mut deaf, Duration::from_millis(300)).unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn this_process_has_taken_time() {
        assert!(cpu_time(&Process::myself().unwrap()).unwrap() > Duration::ZERO);
    }

    #[test]
    fn an_unmet_condition_names_what_it_waited_for() {
        let error = wait_for::<()>("rain", Duration::ZERO, || Ok(None)).unwrap_err();
        assert!(error.to_string().contains("rain"), "{error}");
    }
}
