//! The kernel's threads for softirqs, `ksoftirqd/N`: one for each CPU, which continues the work that interrupts leave over.

use std::{fs, io, path::PathBuf, time::Duration};

/// The files that the threads are read from.
pub const SOURCE: &str = "/proc/PID/schedstat of ksoftirqd";

/// A thread of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The CPU.
    pub cpu: u32,
    file: PathBuf,
}

/// Returns the threads of all CPUs; none in another pid namespace, and without `CONFIG_SCHED_INFO`.
#[must_use]
pub fn threads() -> Vec<Thread> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut threads: Vec<_> = processes.filter_map(|process| thread(process.path())).collect();
    threads.sort_by_key(|thread| thread.cpu);
    threads
}

fn thread(process: PathBuf) -> Option<Thread> {
    // The threads of the kernel are children of thread 2 and have no name of a program, which a user could choose.
    let cpu = fs::read_to_string(process.join("comm")).ok()?.trim_end().strip_prefix("ksoftirqd/")?.parse().ok()?;
    let is_kernel = fs::read(process.join("cmdline")).is_ok_and(|line| line.is_empty());
    let file = process.join("schedstat");
    (is_kernel && fs::read_to_string(&file).is_ok()).then_some(Thread { cpu, file })
}

impl Thread {
    /// Returns the time that the thread was ready to run and waited for its CPU, since it was created.
    ///
    /// # Errors
    /// If the file cannot be read or has another form.
    pub fn wait(&self) -> io::Result<Duration> {
        let text = fs::read_to_string(&self.file)?;
        wait(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text:?}", self.file.display())))
    }
}

/// Parses `schedstat`: nanoseconds on a CPU, nanoseconds of waiting for one, and the number of time slices (`proc_pid_schedstat`,
/// 2.6.23 to 7.3).
fn wait(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(wait("38917 1500000000 12\n"), Some(Duration::from_millis(1500)));
        assert_eq!([wait(""), wait("1"), wait("1 x 2")], [None; 3]);
    }

    #[test]
    fn a_program_with_the_name_of_a_thread_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = |name: &str, line: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("created");
            for (file, text) in [("comm", "ksoftirqd/3\n"), ("cmdline", line), ("schedstat", "1 2 3\n")] {
                fs::write(path.join(file), text).expect("written");
            }
            thread(path)
        };
        assert_eq!(process("17", "").map(|thread| thread.cpu), Some(3));
        assert_eq!(process("18", "/bin/evil\0"), None);
    }
}
