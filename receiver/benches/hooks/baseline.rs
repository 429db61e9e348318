//! Empty programs on the hooks of the sidecar's programs.

use anyhow::Context as _;
use aya::{Btf, Ebpf, EbpfLoader, programs::BtfTracePoint};
use undercurrent::{
    kernel::{counters::Events, hooks::Hook, host::Host, statistics::Runs},
    loader::{attach::Attaching, cpu_events::CpuEvents, plan, statistics::Links},
    options::AttachKind,
    signals::all_hooks,
};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/baseline.bpf.o");

/// A program that only reads the clock.
pub const CLOCK_ALONE: &str = "clock_alone";
/// The tracepoint of the clock program, and the empty program on it.
pub const BESIDE: &str = "net_dev_start_xmit";

/// An empty program on each hook. Dropping the value detaches the programs.
pub struct Baseline(Ebpf);

impl Baseline {
    /// Attaches empty programs by the alternates that the sidecar would choose.
    pub fn attach(host: &Host, hooks: &[&'static Hook], avoid: &[AttachKind]) -> anyhow::Result<Self> {
        let mut ebpf = EbpfLoader::new().btf(None).load(OBJECT).context("cannot load the empty programs")?;
        let types = Btf::from_sys_fs().context("cannot read the kernel's types")?;
        let mut cpu_events = CpuEvents::new(Events::Hardware);
        let mut attaching = Attaching {
            ebpf: &mut ebpf,
            types: Some(&types),
            host,
            avoid,
            cpu_events: &mut cpu_events,
            socket_of_packet: false,
        };
        let hooks = all_hooks().into_iter().filter(|hook| hooks.contains(hook));
        plan::serve_all(&mut attaching, hooks, &mut Vec::new());
        Ok(Self(ebpf))
    }

    /// Attaches empty programs, and a program that reads the clock, to compare results of different machines.
    pub fn with_clock(host: &Host, hooks: &[&'static Hook], avoid: &[AttachKind]) -> anyhow::Result<Self> {
        let Self(mut ebpf) = Self::attach(host, hooks, avoid)?;
        let types = Btf::from_sys_fs().context("cannot read the kernel's types")?;
        let program = ebpf.program_mut(CLOCK_ALONE).context("the object lacks the program that reads the clock")?;
        let program: &mut BtfTracePoint = program.try_into()?;
        program.load(BESIDE, &types).and_then(|()| program.attach()).context("cannot attach what reads the clock")?;
        Ok(Self(ebpf))
    }

    /// Returns the runs of each program by its symbol.
    pub fn runs(&self) -> impl Iterator<Item = (&str, Runs)> {
        self.0.programs().filter_map(|(name, program)| Some((name, Links::default().runs(program.fd().ok()?)?)))
    }
}
