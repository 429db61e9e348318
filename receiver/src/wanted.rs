//! What a configuration wants of a kernel, and whether it may have it.

use bytesize::ByteSize;
use undercurrent_ebpf::abi::latency::Layer;

use crate::{
    config::{Means, MemoryLimit, Settings},
    kernel::{
        Kernel, KernelError, Requirements, choices::Criteria, groups::GroupBy, hooks::Hook, host::Host, memory::Sizing,
        object::Ownership,
    },
    privileges::{Privileges, ReadError as PrivilegesError, Task, Unprivileged},
    signals::{self, filtering},
    telemetry::Scale,
    workloads,
};

/// Why a process or a host may not have what is wanted.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Capabilities are missing.
    #[error(transparent)]
    Unprivileged(#[from] Unprivileged),
    /// Capabilities cannot be read.
    #[error(transparent)]
    Privileges(#[from] PrivilegesError),
    /// The maps would be too large.
    #[error(
        "the enabled signals need {} of kernel maps on {cpus} CPUs, and `memory_limit` is {}: raise it, or switch signals \
         off; `undercurrent doctor` lists the maps",
        ByteSize(*needed as u64).display().iec(),
        ByteSize(*limit).display().iec()
    )]
    Memory {
        /// Bytes that the maps take.
        needed: usize,
        /// Bytes that they may take.
        limit: u64,
        /// Possible CPUs.
        cpus: usize,
    },
}

/// What a configuration wants of a kernel.
pub struct Wanted {
    signals: Vec<&'static str>,
    hooks: Vec<&'static Hook>,
    functions: Vec<String>,
    scale: Scale,
    criteria: Criteria,
    group_by: GroupBy,
    avoid: Vec<Means>,
    workloads: Option<(Ownership, u16)>,
    excludes_blocked: bool,
    /// Layers of the way out, as programs know them.
    transmit: u32,
}

impl Wanted {
    /// What settings want, where owners are found in some way or cannot be.
    #[must_use]
    pub fn of(settings: &Settings, ownership: Option<Ownership>) -> Self {
        let workloads = ownership.filter(|_| settings.workloads.enabled);
        let mut hooks = signals::hooks(&settings.signals);
        hooks.extend(workloads.into_iter().flat_map(workloads::hooks));
        let group = &settings.signals.latency.group;
        Self {
            signals: signals::wanted(&settings.signals).map(|entry| entry.name).collect(),
            hooks,
            functions: signals::functions(&settings.signals).map(str::to_owned).collect(),
            scale: settings.signals.latency.scale,
            criteria: filtering::criteria(&settings.signals.latency.filter, settings.workloads.limit),
            group_by: GroupBy::new(group.by.iter(), group.limit.get()),
            avoid: settings.avoid.clone(),
            workloads: workloads.map(|ownership| (ownership, settings.workloads.limit)),
            excludes_blocked: [Layer::SocketEnqueued, Layer::SocketRead]
                .into_iter()
                .any(|layer| settings.signals.latency.excludes_blocked(layer)),
            transmit: settings.signals.transmit.layers.bits(),
        }
    }

    /// What decides how large maps are on a machine of so many CPUs.
    #[must_use]
    pub fn sizing(&self, cpus: usize) -> Sizing<'_> {
        let (signals, functions, workloads) = (&self.signals, self.functions.len(), self.workloads());
        let (scale, criteria, group_by) = (self.scale, self.criteria, self.group_by);
        Sizing { cpus, scale, signals, criteria, group_by, workloads, functions }
    }

    /// The hooks to serve.
    #[must_use]
    pub fn hooks(&self) -> &[&'static Hook] {
        &self.hooks
    }

    /// Workloads with slots of their own; `None` where nothing is told apart by workload.
    #[must_use]
    pub fn workloads(&self) -> Option<u16> {
        self.workloads.map(|(_, limit)| limit)
    }

    /// Refuses maps that are larger than a limit.
    ///
    /// # Errors
    /// [`Refused::Memory`].
    pub fn within_memory(&self, limit: MemoryLimit, cpus: usize) -> Result<(), Refused> {
        let (needed, limit) = (self.sizing(cpus).bytes(), limit.bytes());
        if needed as u64 > limit { Err(Refused::Memory { needed, limit, cpus }) } else { Ok(()) }
    }

    /// What the kernel has to provide, on a machine of so many CPUs.
    #[must_use]
    pub fn requirements(&self, cpus: usize) -> Requirements<'_> {
        Requirements {
            sizing: self.sizing(cpus),
            hooks: &self.hooks,
            functions: &self.functions,
            ownership: self.workloads.map(|(ownership, _)| ownership),
            avoid: &self.avoid,
            excludes_blocked: self.excludes_blocked,
            transmit: self.transmit,
        }
    }

    /// Loads what the hooks need into this process, and serves them all.
    ///
    /// # Errors
    /// Where nothing can be measured.
    pub fn listen(&self, host: Host) -> Result<Kernel, KernelError> {
        let mut kernel = Kernel::load(host.clone(), &self.requirements(host.cpus))?;
        kernel.serve(&self.hooks)?;
        kernel.serve_functions()?;
        Ok(kernel)
    }
}

/// Looks at the host, with what this process lacks for attaching.
///
/// # Errors
/// Where this process's capabilities cannot be read.
pub fn host() -> Result<(Host, Privileges), PrivilegesError> {
    let privileges = Privileges::current()?;
    let lacks = privileges.lacks(&[Task::LoadTracing, Task::AttachCgroup]);
    let mut missing: Vec<String> = lacks.iter().flat_map(|lack| &lack.missing).map(ToString::to_string).collect();
    missing.sort();
    missing.dedup();
    Ok((Host::probe(missing), privileges))
}

/// Refuses what this process may not do, or may not on this host, before anything is touched.
///
/// # Errors
/// Where capabilities are missing, or maps would be larger than the settings allow.
pub fn permitted(settings: &Settings) -> Result<(Host, Wanted), Refused> {
    let (host, privileges) = host()?;
    let wanted = Wanted::of(settings, host.ownership());
    if !wanted.hooks.is_empty() {
        privileges.require(&[Task::LoadTracing])?;
    }
    wanted.within_memory(settings.memory_limit, host.cpus)?;
    Ok((host, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{File, Flags};

    #[test]
    fn maps_larger_than_the_limit_are_refused() {
        let file = File::parse("config.yaml".as_ref(), b"memory_limit: 1MiB").expect("a configuration");
        let (settings, _) = Settings::resolve(Flags::default(), &|_| None, file);
        let wanted = Wanted::of(&settings, None);
        wanted.within_memory(settings.memory_limit, 2).expect("room");
        let refusal = wanted.within_memory(settings.memory_limit, 256).expect_err("refused").to_string();
        for words in
            ["on 256 CPUs", "`memory_limit` is 1.0 MiB", "raise it", "switch signals off", "undercurrent doctor"]
        {
            assert!(refusal.contains(words), "{words} in {refusal}");
        }
    }
}
