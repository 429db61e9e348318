//! Runs one command in a guest.

use std::{
    env,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use xtask_common::machine;

use super::{
    Run,
    clock::Stopwatch,
    export, initramfs,
    ports::Ports,
    process::Process,
    qemu::{Machine, STAMPING},
    script,
    share::Share,
    store::Store,
    tools::{self, Qemu, Virtiofsd},
};

/// The exit status after a timeout, equal to that of `timeout(1)`.
const TIMED_OUT: i32 = 124;
/// Number of lines of each log to show after a failure.
const CONSOLE_LINES: usize = 100;

/// Events that end a run.
enum Event {
    /// The guest exited, with or without a status line.
    Status(Option<String>),
    /// This process received a signal.
    Signal(i32),
}

/// Runs the command in a guest. Returns its exit status, [`TIMED_OUT`], or [`super::NO_STATUS`].
pub fn run(options: &Run) -> anyhow::Result<i32> {
    ensure!(machine::is_root(), "the guest mounts this machine's root: run this as root (sudo -E)");
    let stopwatch = Stopwatch::start();
    let kernel = options.kernel.context("no kernel was named")?;
    let store = Store::open()?;
    let (qemu, daemon, busybox) = (Qemu::find(&store)?, Virtiofsd::find(&store)?, tools::busybox(&store)?);
    let cached = store.kernel(kernel)?;

    let (sender, events) = mpsc::channel();
    forward_signals(sender.clone())?;
    let work =
        tempfile::Builder::new().prefix("undercurrent-vm-").tempdir().context("cannot create a folder for this run")?;
    let at = |name: &str| work.path().join(name);
    let share = Share::open(options.share.as_deref())?;
    let folder = env::current_dir().context("the current directory is gone")?;
    let files = [
        ("settings", script::settings(&cached, &modules(options), share.path())),
        ("command", script::command(kernel, &options.env, &folder, share.path(), &options.command)),
    ];
    initramfs::write(&at("initramfs"), &cached, &busybox, &files)?;

    std::fs::create_dir(at("root"))?;
    let _daemons = [
        export::root(&daemon, &needed(&store, folder), &at("root"), &at("root.sock"))?,
        export::writable(&daemon, share.path(), &at("share.sock"))?,
    ];
    let (ports, theirs) = Ports::open()?;
    let numbers = Ports::NAMES.iter().zip(&theirs).map(|(name, end)| (*name, end.as_raw_fd()));
    let machine = Machine {
        cpus: options.cpus,
        threads: options.threads,
        icount: options.icount,
        in_turns: options.in_turns,
        stamps: options.stamps,
        parameters: &options.parameters,
        tsc: stopwatch.rate(),
        memory: options.memory,
        kernel: &cached.vmlinux,
        initramfs: &at("initramfs"),
        console: &at("console"),
        ports: &numbers.collect::<Vec<_>>(),
        folders: &[("root", at("root.sock")), ("share", at("share.sock"))],
    };
    let mut command = Command::new(&qemu.program);
    command.args(machine.arguments(&qemu));
    let started = Instant::now();
    let guest = Process::start(command, &at("qemu.log"), theirs.into())?;
    let output = ports.forward(move |status| drop(sender.send(Event::Status(status))));

    let end = events.recv_timeout(options.timeout);
    drop(guest);
    if !matches!(end, Ok(Event::Signal(_))) {
        // QEMU has exited, so these threads end. After an interrupt the reader of the output may be gone.
        output.into_iter().for_each(|thread| drop(thread.join()));
    }
    Ok(conclude(end, options, &cached.release, started, work.path()))
}

/// Converts the end of a run into an exit status, and reports a failure of the guest on stderr.
fn conclude(end: Result<Event, RecvTimeoutError>, options: &Run, release: &str, started: Instant, work: &Path) -> i32 {
    let status = match end {
        Ok(Event::Signal(signal)) => return 128 + signal,
        Ok(Event::Status(Some(line))) => {
            let mut words = line.split_whitespace();
            let (booted, ready) = (words.next().unwrap_or("?"), words.next().unwrap_or("?"));
            if options.verbose {
                let wall = started.elapsed().as_secs_f64();
                eprintln!(
                    "{release}: root after {booted} s, command after {ready} s of guest time; {wall:.1} s in all"
                );
            }
            words.next().and_then(|word| word.parse().ok())
        }
        Ok(Event::Status(None)) | Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            eprintln!(
                "Error: the guest ({release}) exceeded {} s; --timeout sets the limit",
                options.timeout.as_secs()
            );
            Some(TIMED_OUT)
        }
    };
    if status.is_none() {
        eprintln!("Error: the guest ({release}) ended without an exit status");
    }
    if options.verbose || matches!(status, None | Some(TIMED_OUT)) {
        show_logs(work);
    }
    status.unwrap_or(super::NO_STATUS)
}

fn show_logs(work: &Path) {
    for name in ["console", "qemu.log", "root.log", "share.log"] {
        let text = std::fs::read(work.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        if !lines.is_empty() {
            eprintln!("--- {name}\n{}", lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n"));
        }
    }
}

/// Returns the modules to load in addition to the default ones.
fn modules(options: &Run) -> Vec<String> {
    let driver = options.stamps.then(|| STAMPING.to_owned());
    options.modules.iter().cloned().chain(driver).collect()
}

/// Returns paths that must be visible in the guest, on any file system.
fn needed(store: &Store, folder: PathBuf) -> Vec<PathBuf> {
    let variables = ["HOME", "CARGO_HOME", "CARGO_TARGET_DIR", "RUSTUP_HOME"];
    let named = variables.iter().filter_map(env::var_os).map(PathBuf::from);
    let fixed = [folder, store.folder().into(), machine::workspace().into(), env::temp_dir(), "/usr".into()];
    // Mount points have canonical paths.
    named.chain(fixed).filter_map(|path| path.canonicalize().ok()).collect()
}

fn forward_signals(events: Sender<Event>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
    thread::spawn(move || {
        for signal in &mut signals {
            // Sending fails only after the run, when the process exits.
            let _ = events.send(Event::Signal(signal));
        }
    });
    Ok(())
}
