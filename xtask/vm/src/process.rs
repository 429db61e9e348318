//! Processes that do not outlive this one, however it ends.

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

/// A running process, killed when this is dropped, and by the kernel when the thread that started it is no more.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command without input whose output goes to a log. It inherits these file descriptors by their numbers,
    /// and this process then closes them.
    pub fn start(mut command: Command, log: &Path, inherit: Vec<OwnedFd>) -> anyhow::Result<Self> {
        let log = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        // A group of its own: an interrupt from the terminal is for this process to act on.
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
        // Both fail only if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
