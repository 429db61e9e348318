//! Loading, attaching and detaching of one program.

use std::fs::File;

use aya::{
    Btf, Ebpf,
    programs::{
        BtfTracePoint, CgroupSkb, CgroupSkbAttachType, CgroupSock, CgroupSockAddr, FEntry, FExit, KProbe, PerfEvent,
        Program as Loaded, ProgramError, links::CgroupAttachMode,
    },
};
use caps::Capability;

use undercurrent_kernel::{
    constant::Feature,
    cpu_events::CpuEvent,
    hooks::{Attachment, Program},
    host::Host,
    refusal::Refusal,
};

use super::{cpu_events::CpuEvents, plan::Attach, refusal, registers::REGISTERS};
use crate::{options::AttachKind, privileges};

/// The state that attaching programs needs.
pub struct Attaching<'a> {
    /// The eBPF object.
    pub ebpf: &'a mut Ebpf,
    /// The kernel's BTF; `None` after its release.
    pub types: Option<&'a Btf>,
    /// The cgroup mounts and the capabilities of this process.
    pub host: &'a Host,
    /// The kinds of attachment to avoid.
    pub avoid: &'a [AttachKind],
    /// True if programs of a cgroup can read the receiving socket of a packet.
    pub socket_of_packet: bool,
    /// The perf events of the CPUs.
    pub cpu_events: &'a mut CpuEvents,
}

impl Attach for Attaching<'_> {
    fn attach(&mut self, program: &Program<'_>) -> Result<(), Refusal> {
        let means = program.attachment.kind();
        if self.avoid.contains(&means) {
            return Err(refusal::avoided(program, means));
        }
        if means == AttachKind::Kprobe && REGISTERS.is_none() {
            return Err(refusal::unsupported_architecture(program));
        }
        let types = self
            .types
            .ok_or_else(|| Refusal::new(program.symbol, "the kernel's BTF has been released", "restart the sidecar"))?;
        if let Attachment::CpuEvent(event) = program.attachment {
            return on_every_cpu(self.ebpf, self.cpu_events, event, self.host, program);
        }
        attach(self.ebpf, types, self.host, program)
    }

    fn has(&self, feature: Feature) -> bool {
        match feature {
            Feature::SocketOfPacket => self.socket_of_packet,
            Feature::Field(_) | Feature::PacketPayload => false,
        }
    }

    fn detach(&mut self, program: &Program<'_>) {
        if let Attachment::CpuEvent(event) = program.attachment {
            self.cpu_events.forget(event);
        }
        detach(self.ebpf, program);
    }
}

/// Loads and attaches a program; `ebpf` owns the links.
fn attach(ebpf: &mut Ebpf, btf: &Btf, host: &Host, program: &Program<'_>) -> Result<(), Refusal> {
    let loaded = named(ebpf, program)?;
    match program.attachment {
        Attachment::Kprobe | Attachment::Kretprobe => probe(loaded, program.target),
        Attachment::Fentry | Attachment::Fexit | Attachment::Tracepoint => trace(loaded, btf, program.target),
        Attachment::CgroupIngress | Attachment::CgroupSocket | Attachment::CgroupRead | Attachment::CpuEvent(_) => {
            return cgroup(loaded, host, program);
        }
    }
    .map_err(|error| refusal::of(program, &error, host))
}

fn named<'a>(ebpf: &'a mut Ebpf, program: &Program<'_>) -> Result<&'a mut Loaded, Refusal> {
    ebpf.program_mut(program.symbol).ok_or_else(|| {
        let cure = "rebuild Undercurrent: the object and the table of hooks differ";
        Refusal::new(program.symbol, "the object has no such program", cure)
    })
}

/// Loads a program and attaches it to every CPU.
fn on_every_cpu(
    ebpf: &mut Ebpf,
    events: &mut CpuEvents,
    event: CpuEvent,
    host: &Host,
    program: &Program<'_>,
) -> Result<(), Refusal> {
    let loaded = named(ebpf, program)?;
    let mut attach = || {
        let loaded: &mut PerfEvent = loaded.try_into()?;
        once(loaded.load())?;
        events.attach(event, loaded)
    };
    attach().map_err(|error| refusal::of(program, &error, host))
}

fn trace(loaded: &mut Loaded, btf: &Btf, target: &str) -> Result<(), ProgramError> {
    if let Ok(fentry) = <&mut FEntry>::try_from(&mut *loaded) {
        once(fentry.load(target, btf))?;
        fentry.attach()?;
    } else if let Ok(fexit) = <&mut FExit>::try_from(&mut *loaded) {
        once(fexit.load(target, btf))?;
        fexit.attach()?;
    } else {
        let tracepoint: &mut BtfTracePoint = loaded.try_into()?;
        once(tracepoint.load(target, btf))?;
        tracepoint.attach()?;
    }
    Ok(())
}

fn probe(loaded: &mut Loaded, target: &str) -> Result<(), ProgramError> {
    let kprobe: &mut KProbe = loaded.try_into()?;
    once(kprobe.load())?;
    // Debian's and Ubuntu's kernels require the capability for perf events.
    privileges::with(Capability::CAP_SYS_ADMIN, || kprobe.attach(target, 0))?;
    Ok(())
}

fn cgroup(loaded: &mut Loaded, host: &Host, program: &Program<'_>) -> Result<(), Refusal> {
    let root = host.cgroup_root.as_deref().ok_or_else(|| {
        Refusal::new(
            program.symbol,
            "the root of the cgroup v2 hierarchy is not mounted",
            "mount it: mount -t cgroup2 none /sys/fs/cgroup/unified; in a container, give the sidecar the host's",
        )
    })?;
    let cgroup = File::open(root).map_err(|error| {
        let what = format!("cannot open the root cgroup {}: {error}", root.display());
        Refusal::new(program.symbol, what, "give the sidecar the host's cgroup file system")
    })?;
    below(loaded, &cgroup).map_err(|error| refusal::of(program, &error, host))
}

/// Attaches to a cgroup and its descendants. A link always allows other programs on the hook; the kernel refuses
/// `BPF_F_ALLOW_MULTI` for links.
fn below(loaded: &mut Loaded, cgroup: &File) -> Result<(), ProgramError> {
    if let Ok(ingress) = <&mut CgroupSkb>::try_from(&mut *loaded) {
        once(ingress.load())?;
        ingress.attach(cgroup, CgroupSkbAttachType::Ingress, CgroupAttachMode::Single)?;
    } else if let Ok(read) = <&mut CgroupSockAddr>::try_from(&mut *loaded) {
        once(read.load())?;
        read.attach(cgroup, CgroupAttachMode::Single)?;
    } else {
        let socket: &mut CgroupSock = loaded.try_into()?;
        once(socket.load())?;
        socket.attach(cgroup, CgroupAttachMode::Single)?;
    }
    Ok(())
}

/// Ignores the error of a program that is already loaded from an earlier attempt.
fn once(loaded: Result<(), ProgramError>) -> Result<(), ProgramError> {
    match loaded {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        other => other,
    }
}

/// Detaches and unloads a program.
pub fn detach(ebpf: &mut Ebpf, program: &Program<'_>) {
    let unloaded = match ebpf.program_mut(program.symbol) {
        Some(Loaded::FEntry(fentry)) => fentry.unload(),
        Some(Loaded::FExit(fexit)) => fexit.unload(),
        Some(Loaded::KProbe(kprobe)) => kprobe.unload(),
        Some(Loaded::BtfTracePoint(tracepoint)) => tracepoint.unload(),
        Some(Loaded::CgroupSkb(ingress)) => ingress.unload(),
        Some(Loaded::CgroupSock(socket)) => socket.unload(),
        Some(Loaded::CgroupSockAddr(read)) => read.unload(),
        Some(Loaded::PerfEvent(event)) => event.unload(),
        _ => Ok(()),
    };
    // The program is not loaded if an earlier step failed.
    drop(unloaded);
}
