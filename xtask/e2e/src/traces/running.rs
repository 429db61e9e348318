//! Programs of the scenario.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use xtask_common::{
    hash, machine,
    process::{self, patience},
};

use super::PATIENCE;

/// A process that ends on drop.
pub struct Running(Child);

impl Running {
    /// Starts a process and waits until it prints a text.
    pub fn start(command: &mut Command, ready: &str) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (out, error) = (child.stdout.take(), child.stderr.take());
        let running = Self(child);
        let (sender, lines) = std::sync::mpsc::channel();
        let out = out.map(|out| Box::new(out) as Box<dyn std::io::Read + Send>);
        let error = error.map(|error| Box::new(error) as Box<dyn std::io::Read + Send>);
        for stream in [out, error].into_iter().flatten() {
            let sender = sender.clone();
            // The threads read to the end, because the process would block on a full pipe.
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
            });
        }
        drop(sender);
        let mut printed = Vec::new();
        while let Ok(line) = lines.recv_timeout(patience(PATIENCE)) {
            let is_ready = line.contains(ready);
            printed.push(line);
            if is_ready {
                std::thread::spawn(move || lines.into_iter().for_each(drop));
                return Ok(running);
            }
        }
        anyhow::bail!("{command:?} did not print {ready:?}: {printed:#?}")
    }
}

impl Running {
    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = process::end(&mut self.0, patience(PATIENCE));
    }
}

/// Returns a Python with the packages of `requirements.txt`, from the cache.
pub fn python() -> anyhow::Result<PathBuf> {
    let requirements = machine::workspace().join("xtask/e2e/traces/requirements.txt");
    let content = std::fs::read(&requirements).context("cannot read requirements.txt")?;
    let folder = machine::cache("python")?.join(&hash::sha256(&content)[..12]);
    let python = folder.join("bin/python3");
    if !folder.join("complete").exists() {
        machine::output(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        machine::output(
            Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&requirements),
        )?;
        std::fs::write(folder.join("complete"), "")?;
    }
    Ok(python)
}
