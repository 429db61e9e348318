//! `cargo xtask vm`: runs a command under another Linux kernel, in a virtual machine without acceleration. The guest's root is the
//! root of this machine, read-only below a tmpfs. See `docs/internals/kernels.md`.

mod archive;
mod btf;
mod bzimage;
mod clock;
mod export;
mod initramfs;
mod kernels;
mod modules;
mod ports;
mod process;
mod qemu;
mod run;
mod script;
mod share;
mod store;
mod tools;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::exit,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use xtask_common::{about, machine};

use self::{kernels::Kernel, qemu::Mebibytes};

/// The exit status if the guest did not start or did not report a status. Distinguishes failures of the virtual machine from
/// failures of the command.
const NO_STATUS: i32 = 125;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    #[command(about = about::VM)]
    Vm(Vm),
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    let Command::Vm(vm) = Command::parse();
    vm.run()
}

/// The arguments of `cargo xtask vm`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Vm {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    run: Run,
    /// List the kernels that have a name here, and those in the cache
    #[arg(long)]
    list: bool,
    /// Print the name and the release of each kernel in the cache
    #[arg(long, hide = true)]
    releases: bool,
}

#[derive(Subcommand)]
enum Other {
    /// Write the raw BTF of a kernel's vmlinux to a file, without booting it
    Btf {
        /// Which kernel
        #[arg(long, value_parser = kernels::named)]
        kernel: &'static Kernel,
        /// Where to write it
        #[arg(short, long)]
        output: PathBuf,
    },
}

/// The command, and the properties of the machine.
#[derive(Args)]
struct Run {
    /// Which kernel
    #[arg(long, value_parser = kernels::named, required_unless_present_any = ["list", "releases"])]
    kernel: Option<&'static Kernel>,
    /// One CPU whose clock counts instructions (one is a nanosecond): times repeat, but a busy second takes half a minute
    #[arg(long)]
    icount: bool,
    /// CPUs of the guest
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..), conflicts_with = "icount")]
    cpus: u8,
    /// Hyper-threads of each core; the CPUs are a multiple of them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..), conflicts_with = "icount")]
    threads: u8,
    /// Run the CPUs in turns on one thread: as fast where as many guests run as this machine has CPUs, and QEMU's threads
    /// have races, which end a guest now and then (`Oops: int3`, 10.0)
    #[arg(long)]
    in_turns: bool,
    /// Memory of the guest, in MiB; what is written to its disk counts
    #[arg(long, value_name = "MIB", default_value = "3072")]
    memory: Mebibytes,
    /// Seconds after which the guest is stopped, with exit status 124
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    timeout: Duration,
    /// Make the second network interface a NIC that stamps PTP's packets; general kernels alone have its driver
    #[arg(long)]
    stamps: bool,
    /// A parameter of the kernel beside the usual ones (repeatable)
    #[arg(long = "parameter", value_name = "NAME[=VALUE]")]
    parameters: Vec<String>,
    /// Kernel modules to load beside the usual ones, separated by spaces
    #[arg(long, value_delimiter = ' ')]
    modules: Vec<String>,
    /// An environment variable to pass through beside the usual ones: NAME, or NAME=VALUE (repeatable)
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// A folder that the guest may write to, by the same path, which it finds in $UNDERCURRENT_SHARE [default: a new one,
    /// which stays if the guest leaves something in it]
    #[arg(long, value_name = "FOLDER")]
    share: Option<PathBuf>,
    /// Say how long the guest took, and show its console
    #[arg(short, long)]
    verbose: bool,
    /// The command: one argument is a line for sh, several are a program and its arguments
    #[arg(last = true, required_unless_present_any = ["list", "releases"])]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds: u64 = text.parse().context("not a whole number of seconds")?;
    anyhow::ensure!(seconds > 0, "a guest needs at least a second");
    Ok(Duration::from_secs(seconds))
}

impl Vm {
    /// Runs the subcommand. A guest's command determines the exit status of this process.
    fn run(self) -> anyhow::Result<()> {
        if self.list {
            return list();
        }
        if self.releases {
            return releases();
        }
        if let Some(Other::Btf { kernel, output }) = self.other {
            return btf::write_to(kernel, &output);
        }
        let status = run::run(&self.run).unwrap_or_else(|error| {
            eprintln!("Error: {error:?}");
            NO_STATUS
        });
        // All values with destructors are local to `run::run`, so `exit` skips none.
        if status != 0 {
            exit(status);
        }
        Ok(())
    }
}

/// Prints the name and the release of each kernel in the cache.
fn releases() -> anyhow::Result<()> {
    let store = store::Store::open()?;
    for kernel in kernels::KERNELS {
        if let Some(cached) = store.cached(kernel)? {
            println!("{} {}", kernel.name, cached.release);
        }
    }
    Ok(())
}

fn list() -> anyhow::Result<()> {
    let store = store::Store::open()?;
    println!("{:<14}{:<20}IN THE CACHE", "KERNEL", "SUITE");
    for kernel in kernels::KERNELS {
        let cached = store.cached(kernel)?;
        let release = cached.as_ref().map_or("-", |cached| &cached.release);
        println!("{:<14}{:<20}{release}", kernel.name, kernel.suite);
    }
    println!("cache: {} (remove kernels/NAME in it for a newer build)", store.folder().display());
    Ok(())
}

/// Reads a file. An error contains the path.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file. An error contains the path.
fn write(path: &Path, contents: impl AsRef<[u8]>) -> anyhow::Result<()> {
    std::fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}
