//! The emulated machine, as arguments of QEMU.

use std::{
    ffi::OsString,
    fmt,
    os::fd::RawFd,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::Context as _;

use super::tools::Qemu;

/// An amount of memory in units of 2^20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mebibytes(u32);

impl FromStr for Mebibytes {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let amount = text.parse().context("not a whole number of MiB")?;
        anyhow::ensure!(amount >= 256, "a guest needs 256 MiB at least");
        Ok(Self(amount))
    }
}

impl fmt::Display for Mebibytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}M", self.0)
    }
}

/// A frequency in units of 1000 Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kilohertz(pub u64);

/// A network interface of the guest.
pub struct Nic {
    /// The name in the guest.
    pub name: &'static str,
    /// A locally administered MAC address, by which the guest identifies the interface.
    pub address: &'static str,
}

/// Two interfaces connected only to each other. If one is moved into a network namespace, traffic passes the driver, NAPI and GRO.
pub const NICS: [Nic; 2] =
    [Nic { name: "vnet0", address: "52:54:00:75:63:00" }, Nic { name: "vnet1", address: "52:54:00:75:63:01" }];

const VIRTIO: &str = "virtio-net-pci";
/// A NIC that timestamps PTP packets: the name of the device in QEMU and of the driver in Linux.
pub const STAMPING: &str = "igb";

/// Properties of the machine.
pub struct Machine<'a> {
    /// Number of CPUs. With `icount` there is always one.
    pub cpus: u8,
    /// Hyper-threads of each core.
    pub threads: u8,
    /// True if the clock counts instructions.
    pub icount: bool,
    /// True if the CPUs share one thread.
    pub in_turns: bool,
    /// True if the second interface is a NIC that timestamps packets.
    pub stamps: bool,
    /// Parameters of the kernel beside the usual ones.
    pub parameters: &'a [String],
    /// Rate of this machine's time stamp counter. The guest has an equal rate unless its clock counts instructions.
    pub tsc: Kilohertz,
    /// Memory of the guest.
    pub memory: Mebibytes,
    /// An ELF vmlinux.
    pub kernel: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// The file for the output of the kernel's console.
    pub console: &'a Path,
    /// Ports that the guest writes to: name and inherited socket.
    pub ports: &'a [(&'a str, RawFd)],
    /// Shared folders: virtiofs tag and the socket of the daemon.
    pub folders: &'a [(&'a str, PathBuf)],
}

/// mitigations, kaslr: the cost of a probe must not depend on the emulated CPU's age or on the run.
/// tsc, timer: an emulated clock is steady, but the kernel's checks of it fail on a busy host.
/// rcu: without it, attaching a program would mostly wait for a grace period.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable clocksource=tsc \
                                no_timer_check nowatchdog rcupdate.rcu_expedited=1 audit=0 selinux=0 apparmor=0";

/// Features that slow an emulated guest down are off.
const CPU: &str = "max,la57=off,smap=off,smep=off,pcid=off";

impl Machine<'_> {
    /// QEMU's command line.
    pub fn arguments(&self, qemu: &Qemu) -> Vec<OsString> {
        let cpus = if self.icount { 1 } else { self.cpus };
        let threads = if self.icount || self.in_turns || !qemu.multi_threaded { "single" } else { "multi" };
        let mut line = Line::default();
        line.add(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        for folder in &qemu.data {
            line.add([OsString::from("-L"), folder.into()]);
        }
        line.add(["-machine", "q35,memory-backend=memory", "-cpu", CPU]);
        line.add(["-accel".to_owned(), format!("tcg,thread={threads}")]);
        if self.icount {
            // One instruction is 2^0 ns, and a sleeping guest's clock jumps to its next timer.
            line.add(["-icount", "shift=0,sleep=off"]);
        }
        let topology = if self.threads > 1 { format!("{cpus},threads={}", self.threads) } else { cpus.to_string() };
        line.add(["-smp".to_owned(), topology, "-m".to_owned(), self.memory.to_string()]);
        // The virtiofs daemons access the guest's memory.
        line.add(["-object".to_owned(), format!("memory-backend-memfd,id=memory,size={},share=on", self.memory)]);
        line.add([OsString::from("-kernel"), self.kernel.into(), "-initrd".into(), self.initramfs.into()]);
        // Without this argument the guest measures the rate with an emulated timer. On a busy host its clock then ran up to eight
        // times too fast.
        let tsc = if self.icount { Kilohertz(1_000_000) } else { self.tsc };
        let rate = format!("tsc_early_khz={}", tsc.0);
        let arguments = [KERNEL_ARGUMENTS, &rate].into_iter().chain(self.parameters.iter().map(String::as_str));
        line.add(["-append".to_owned(), arguments.collect::<Vec<_>>().join(" ")]);
        line.add(["-chardev".to_owned(), format!("file,id=console,path={}", escaped(self.console))]);
        line.add(["-serial", "chardev:console"]);
        self.add_folders(&mut line);
        self.add_ports(&mut line);
        self.add_nics(&mut line);
        line.0
    }

    fn add_folders(&self, line: &mut Line) {
        for (tag, socket) in self.folders {
            line.add(["-chardev".to_owned(), format!("socket,id={tag},path={}", escaped(socket))]);
            let device = format!("vhost-user-fs-pci,queue-size=1024,chardev={tag},tag={tag}");
            line.add(["-device".to_owned(), device]);
        }
    }

    fn add_ports(&self, line: &mut Line) {
        line.add(["-device", "virtio-serial-pci"]);
        for (name, descriptor) in self.ports {
            line.add(["-chardev".to_owned(), format!("socket,id={name},fd={descriptor}")]);
            line.add(["-device".to_owned(), format!("virtserialport,chardev={name},name={name}")]);
        }
    }

    fn add_nics(&self, line: &mut Line) {
        let second = if self.stamps { STAMPING } else { VIRTIO };
        for (Nic { name, address }, device) in NICS.iter().zip([VIRTIO, second]) {
            line.add(["-netdev".to_owned(), format!("hubport,id={name},hubid=0")]);
            // No firmware: the guest does not boot from the network, and the firmware would need another package.
            line.add(["-device".to_owned(), format!("{device},netdev={name},mac={address},romfile=")]);
        }
    }
}

/// A command line under construction.
#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn add<const N: usize>(&mut self, words: [impl Into<OsString>; N]) {
        self.0.extend(words.map(Into::into));
    }
}

/// Escapes a path for QEMU, which splits options at commas and reads two commas as one.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(icount: bool, in_turns: bool, multi_threaded: bool) -> String {
        let qemu = Qemu { program: "qemu".into(), data: vec!["/data".into()], multi_threaded };
        let machine = Machine {
            cpus: 4,
            threads: 1,
            icount,
            in_turns,
            stamps: false,
            parameters: &[],
            tsc: Kilohertz(2_400_000),
            memory: Mebibytes(512),
            kernel: Path::new("/k/vmlinux"),
            initramfs: Path::new("/w/initramfs"),
            console: Path::new("/w,1/console"),
            ports: &[("stdout", 7)],
            folders: &[("root", "/w,1/root.sock".into())],
        };
        let words: Vec<_> = machine.arguments(&qemu).into_iter().map(|word| word.into_string().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn the_two_interfaces_share_one_wire() {
        let line = line(false, false, true);
        for nic in NICS {
            assert!(line.contains(&format!("hubport,id={},hubid=0", nic.name)), "{line}");
            assert!(line.contains(&format!("netdev={},mac={}", nic.name, nic.address)), "{line}");
        }
    }

    #[test]
    fn counting_instructions_takes_one_cpu_on_one_thread() {
        let counting = line(true, false, true);
        assert!(counting.contains("-icount shift=0,sleep=off -smp 1 "), "{counting}");
        assert!(counting.contains("thread=single"), "{counting}");
        assert!(counting.contains("tsc_early_khz=1000000"), "a counted instruction is a nanosecond: {counting}");
        let free = line(false, false, true);
        assert!(
            !free.contains("icount")
                && free.contains("-smp 4 ")
                && free.contains("tsc_early_khz=2400000")
                && free.contains("thread=multi"),
            "{free}"
        );
    }

    #[test]
    fn an_old_qemu_and_in_turns_use_one_thread() {
        assert!(line(false, false, false).contains("thread=single -smp 4"));
        assert!(line(false, true, true).contains("thread=single -smp 4"));
    }

    #[test]
    fn commas_in_paths_are_escaped() {
        let line = line(false, false, true);
        assert!(
            line.contains("id=root,path=/w,,1/root.sock") && line.contains("id=console,path=/w,,1/console"),
            "{line}"
        );
    }

    #[test]
    fn memory_is_a_number_of_mebibytes() {
        assert_eq!("512".parse::<Mebibytes>().unwrap().to_string(), "512M");
        assert!("1".parse::<Mebibytes>().is_err() && "1G".parse::<Mebibytes>().is_err());
    }
}
