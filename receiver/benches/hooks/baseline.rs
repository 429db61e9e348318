//! Empty programs, attached as the product's are.

use anyhow::Context as _;
use aya::{Btf, Ebpf, EbpfLoader};
use undercurrent::{
    config::Means,
    kernel::{
        attach::Attaching,
        hooks::{self, Hook},
        host::Host,
        plan,
        statistics::{self, Runs},
    },
};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/baseline.bpf.o");

/// An empty program on each hook; they go with the value.
pub struct Baseline(Ebpf);

impl Baseline {
    /// Serves hooks by the alternates that the product would choose.
    pub fn attach(host: &Host, hooks: &[&'static Hook], avoid: &[Means]) -> anyhow::Result<Self> {
        let mut ebpf = EbpfLoader::new().btf(None).load(OBJECT).context("cannot load the empty programs")?;
        let types = Btf::from_sys_fs().context("cannot read the kernel's types")?;
        let mut attaching = Attaching { ebpf: &mut ebpf, types: &types, host, avoid };
        let hooks = hooks::ALL.into_iter().filter(|hook| hooks.contains(hook));
        plan::serve_all(&mut attaching, hooks, &mut Vec::new());
        Ok(Self(ebpf))
    }

    /// How often each program ran, by its symbol.
    pub fn runs(&self) -> impl Iterator<Item = (&str, Runs)> {
        self.0.programs().filter_map(|(name, program)| Some((name, statistics::read(program.fd().ok()?)?)))
    }
}
