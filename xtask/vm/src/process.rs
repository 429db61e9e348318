//! Child processes that the kernel kills if this process dies.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    process::{Signal, getppid, set_parent_process_death_signal},
};

/// A running process. It is killed on drop, and by the kernel when the thread that started it exits.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command without input. Its output goes to a log. The child inherits `inherit` under unchanged numbers; this process
    /// closes them.
    pub fn start(mut command: Command, log: &Path, inherit: Vec<OwnedFd>) -> anyhow::Result<Self> {
        let log = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        // A separate process group: this process handles an interrupt from the terminal.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let parent = rustix::process::getpid();
        let prepare = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                return Err(Errno::SRCH.into());
            }
            inherit.iter().try_for_each(|descriptor| fcntl_setfd(descriptor, FdFlags::empty()))?;
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes system calls only: it takes no lock and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { child })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the process was already reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
