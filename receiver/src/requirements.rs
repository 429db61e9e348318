//! The kernel features that a configuration requires, and the checks of privileges and memory before the start.

use std::path::{Path, PathBuf};

use crate::{
    cgroup::Ownership,
    config::Settings,
    environment,
    kernel::{
        Kernel, KernelError, LoadOptions,
        constant::Constant,
        criteria::{FilterKeys, GroupBy},
        hooks::Hook,
        host::Host,
        memory::{MapSize, PlannedMap, Sizing},
    },
    loader::{self, LoadError},
    node,
    options::{AttachKind, MemoryLimit, Namespace},
    packets,
    privileges::{Privileges, ReadError as PrivilegesError, Task, Unprivileged},
    reader::{Places, SocketPaths},
    signals::{self, ConstantContext},
    sysfs::{Meters, Sysfs},
    telemetry::Scale,
    workloads,
};
use bytesize::ByteSize;

/// A missing privilege or resource.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Capabilities are missing.
    #[error(transparent)]
    Unprivileged(#[from] Unprivileged),
    /// Capabilities cannot be read.
    #[error(transparent)]
    Privileges(#[from] PrivilegesError),
    /// The maps exceed the memory limit.
    #[error(
        "the enabled signals need {} of kernel maps on {cpus} CPUs, and `memory_limit` is {}: raise it, or switch signals \
         off; `undercurrent doctor --verbose` lists the maps",
        ByteSize(*needed as u64).display().iec(),
        ByteSize(*limit).display().iec()
    )]
    Memory {
        /// Required memory of the maps, in bytes.
        needed: usize,
        /// The memory limit, in bytes.
        limit: u64,
        /// Number of possible CPUs.
        cpus: usize,
    },
}

/// The tasks of attaching programs.
const ALWAYS: [Task; 2] = [Task::LoadTracing, Task::AttachCgroup];

/// The kernel features that a configuration requires.
pub struct Requirements {
    /// The settings of the signals.
    settings: signals::Settings,
    maps: Vec<(&'static PlannedMap, bool)>,
    hooks: Vec<&'static Hook>,
    functions: Vec<String>,
    scale: Scale,
    filter_keys: FilterKeys,
    group_by: GroupBy,
    avoid: Vec<AttachKind>,
    workloads: Option<(Ownership, u16)>,
    /// The functions that samples are classified by.
    classified: Vec<String>,
    /// The tree with the power meters.
    sysfs: Sysfs,
    meters: Meters,
    /// The hooks that only the processor's counters need.
    counter_hooks: Vec<&'static Hook>,
    /// The files of the outputs, in the order of the outputs.
    output_files: Vec<PathBuf>,
    /// The network namespaces of the packet filter.
    namespaces: Vec<Option<PathBuf>>,
    /// The configuration file, certificates and keys for the delivery, and the sockets of collectors.
    configured: Vec<PathBuf>,
    /// The sockets of container runtimes that the configuration names.
    sockets: Option<Vec<PathBuf>>,
}

impl Requirements {
    /// Returns the requirements of the settings. `ownership` is the available method of attribution, or `None` if
    /// attribution is unavailable.
    #[must_use]
    pub fn new(settings: &Settings, ownership: Option<Ownership>) -> Self {
        let workloads = ownership.filter(|_| settings.workloads.enabled);
        let mut hooks = signals::hooks(&settings.signals);
        let reader = signals::reader_hook(&settings.signals);
        hooks.extend(workloads.into_iter().flat_map(|ownership| workloads::hooks(ownership, reader)));
        let sysfs = Sysfs::new(settings.sysfs_root.clone());
        let group = Some(&settings.packets.group).filter(|_| signals::are_grouped(&settings.signals));
        Self {
            hooks,
            maps: signals::planned_maps(&settings.signals).collect(),
            functions: signals::functions(&settings.signals).map(str::to_owned).collect(),
            scale: settings.packets.scale,
            filter_keys: packets::filter_keys(&settings.packets.filter, settings.workloads.limit),
            group_by: group.map_or_else(GroupBy::default, |group| GroupBy::new(group.by.iter(), group.limit.get())),
            avoid: settings.avoid.clone(),
            workloads: workloads.map(|ownership| (ownership, settings.workloads.limit)),
            classified: signals::classified(&settings.signals),
            meters: sysfs.meters(),
            sysfs,
            counter_hooks: signals::counter_hooks(&settings.signals),
            output_files: settings.outputs.files().map(Path::to_owned).collect(),
            namespaces: settings.packets.filter.network_namespaces.iter().map(path_of).collect(),
            configured: Vec::new(),
            sockets: settings.workloads.sockets(),
            settings: settings.signals.clone(),
        }
    }

    /// Lets the reader open these files, or connect to these sockets: the configuration file, certificates, keys, collectors.
    #[must_use]
    pub fn readable(self, mut configured: Vec<PathBuf>) -> Self {
        // Messages contain paths as text, so no request can name another one.
        configured.retain(|path| path.to_str().is_some());
        Self { configured, ..self }
    }

    /// Returns the parameters that determine map sizes on a machine with `cpus` possible CPUs.
    #[must_use]
    pub fn sizing(&self, cpus: usize) -> Sizing {
        let (functions, workloads) = (self.functions.len(), self.workloads());
        let (scale, filter_keys, group_by) = (self.scale, self.filter_keys, self.group_by);
        let samples = if self.classified.is_empty() { 0 } else { signals::network_functions::ring_size(cpus) };
        let socket_calls = self.settings.network_cpu.measures_calls();
        let reader_states = self.settings.slow_packets.reader_states;
        let edges = self.settings.tcp_peers.edges.entries();
        Sizing { cpus, scale, filter_keys, group_by, workloads, functions, samples, edges, socket_calls, reader_states }
    }

    /// Returns the constants of the programs on a machine with `cpus` possible CPUs, without those that only the loader
    /// knows.
    fn constants(&self, cpus: usize) -> Vec<Constant> {
        let sizing = self.sizing(cpus);
        let context = ConstantContext { settings: &self.settings, sizing: &sizing, meters: &self.meters };
        signals::constants(&context).into_iter().chain(sizing.constants()).collect()
    }

    /// Returns the size of each map on a machine with `cpus` possible CPUs.
    #[must_use]
    pub fn maps(&self, cpus: usize) -> Vec<MapSize> {
        let sizing = self.sizing(cpus);
        self.maps.iter().map(|(map, is_used)| map.size(&sizing, *is_used)).collect()
    }

    /// Returns the tree with the power meters.
    #[must_use]
    pub const fn sysfs(&self) -> &Sysfs {
        &self.sysfs
    }

    /// Returns the places that the reader may read and open.
    #[must_use]
    pub fn places(&self, host: &Host) -> Places {
        let sockets = SocketPaths::new(self.sockets.clone(), &environment::process, node::host_root());
        let (hierarchy, sysfs, outputs) = (host.hierarchy.clone(), self.sysfs.clone(), self.output_files.clone());
        let (namespaces, configured) = (self.namespaces.clone(), self.configured.clone());
        Places { hierarchy, sysfs, outputs, namespaces, configured, sockets }
    }

    /// Returns the required hooks.
    #[must_use]
    pub fn hooks(&self) -> &[&'static Hook] {
        &self.hooks
    }

    /// Returns the number of workloads with slots of their own. `None` if measurements are not attributed to workloads.
    #[must_use]
    pub fn workloads(&self) -> Option<u16> {
        self.workloads.map(|(_, limit)| limit)
    }

    /// Checks the total size of the maps.
    ///
    /// # Errors
    /// [`Refused::Memory`] if the maps exceed the limit.
    pub fn within_memory(&self, limit: MemoryLimit, cpus: usize) -> Result<(), Refused> {
        let (needed, limit) = (self.maps(cpus).iter().map(MapSize::bytes).sum::<usize>(), limit.bytes());
        if needed as u64 > limit { Err(Refused::Memory { needed, limit, cpus }) } else { Ok(()) }
    }

    /// Returns the options for loading the eBPF programs on a machine with `cpus` possible CPUs.
    #[must_use]
    pub fn load_options(&self, cpus: usize) -> LoadOptions<'_> {
        LoadOptions {
            sizing: self.sizing(cpus),
            constants: self.constants(cpus),
            maps: self.maps(cpus),
            hooks: &self.hooks,
            functions: &self.functions,
            ownership: self.workloads.map(|(ownership, _)| ownership),
            avoid: &self.avoid,
            classified: &self.classified,
            counters: self.settings.processor.wanted(),
            interrupts: self.settings.processor.events,
            counter_hooks: &self.counter_hooks,
            siblings: self.sysfs.siblings(cpus),
        }
    }

    /// Loads the eBPF programs into this process and attaches all hooks.
    ///
    /// # Errors
    /// If no hook can be attached.
    pub fn listen(&self, host: Host) -> Result<Kernel, LoadError> {
        let mut kernel = loader::load(host.clone(), &self.load_options(host.cpus))?;
        self.serve(&mut kernel)?;
        Ok(kernel)
    }

    /// Attaches all hooks and the functions that the user named.
    ///
    /// # Errors
    /// If the loader process ended.
    pub fn serve(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        kernel.serve(&self.hooks)?;
        kernel.serve_functions()
    }
}

fn path_of(namespace: &Namespace) -> Option<PathBuf> {
    match namespace {
        Namespace::Path(path) => Some(path.as_path().to_owned()),
        Namespace::Inode(_) => None,
    }
}

/// Returns the tasks for which the settings need capabilities.
#[must_use]
pub fn tasks(settings: &Settings) -> Vec<Task> {
    let of_signals = signals::enabled(&settings.signals).flat_map(|entry| entry.tasks);
    let of_workloads = workloads::TASKS.iter().filter(|_| settings.workloads.enabled);
    let needed: Vec<&Task> = of_signals.chain(of_workloads).collect();
    let required = required_tasks(settings);
    let is_needed = |task: &Task| ALWAYS.contains(task) || needed.contains(&task) || required.contains(task);
    Task::ALL.into_iter().filter(is_needed).collect()
}

/// Returns the tasks without whose capabilities the sidecar does not start.
#[must_use]
pub fn required_tasks(settings: &Settings) -> Vec<Task> {
    let measures = settings.workloads.enabled || !signals::hooks(&settings.signals).is_empty();
    let changes_user = !settings.separation.root_worker;
    let tasks = [(Task::LoadTracing, measures), (Task::ChangeUser, changes_user)];
    tasks.into_iter().filter_map(|(task, is_required)| is_required.then_some(task)).collect()
}

/// Probes the host and the privileges that this process lacks for attaching.
///
/// # Errors
/// If the capabilities of this process cannot be read.
pub fn host() -> Result<(Host, Privileges), PrivilegesError> {
    let privileges = Privileges::current()?;
    let lacks = privileges.lacks(&ALWAYS);
    let mut missing: Vec<String> = lacks.iter().flat_map(|lack| &lack.missing).map(ToString::to_string).collect();
    missing.sort();
    missing.dedup();
    Ok((Host::probe(missing), privileges))
}

/// Checks capabilities and the memory limit before the sidecar changes anything in the kernel.
///
/// # Errors
/// If capabilities are missing, or if the maps exceed the memory limit.
pub fn permitted(settings: &Settings) -> Result<(Host, Requirements), Refused> {
    let (mut host, privileges) = host()?;
    let requirements = Requirements::new(settings, host.ownership());
    host.meters = requirements.meters.clone();
    privileges.require(&required_tasks(settings))?;
    requirements.within_memory(settings.memory_limit, host.cpus)?;
    Ok((host, requirements))
}

#[cfg(test)]
mod tests {
    use undercurrent_ebpf::abi::loss::PACKET_LOSSES;

    use super::*;
    use crate::{
        config::{File, Flags},
        loader::object,
        options::Workloads,
    };

    #[test]
    fn every_constant_has_exactly_one_writer() {
        let (_, requirements) = resolve("{}", None);
        let constants = requirements.constants(1).into_iter().map(|constant| constant.symbol.to_owned());
        let mut written: Vec<String> = constants.chain(object::own_constants()).collect();
        let mut declared = object::declared_constants().expect("a sound object");
        written.sort();
        declared.sort();
        assert_eq!(written, declared);
    }

    const MIB: usize = 1 << 20;
    /// Size of a histogram at scale 2, in bytes: a sum and 114 buckets.
    const HISTOGRAM: usize = (1 + 114) * 8;

    fn resolve(yaml: &str, ownership: Option<Ownership>) -> (Settings, Requirements) {
        let file = File::parse("config.yaml".as_ref(), yaml.as_bytes()).expect("a configuration");
        let (settings, _) = Settings::resolve(Flags::default(), &|_| None, file);
        let requirements = Requirements::new(&settings, ownership);
        (settings, requirements)
    }

    /// Returns the sizes of all maps with attribution by workload.
    fn maps(yaml: &str, cpus: usize) -> Vec<MapSize> {
        resolve(yaml, Some(Ownership::Unified)).1.maps(cpus)
    }

    fn total(maps: &[MapSize]) -> usize {
        maps.iter().map(MapSize::bytes).sum()
    }

    fn bytes(maps: &[MapSize], name: &str) -> usize {
        maps.iter().find(|map| map.name == name).expect("a map").bytes()
    }

    #[test]
    fn maps_larger_than_the_limit_are_refused() {
        let (settings, requirements) = resolve("memory_limit: 3MiB", None);
        requirements.within_memory(settings.memory_limit, 2).expect("room");
        let refusal = requirements.within_memory(settings.memory_limit, 256).expect_err("refused").to_string();
        for words in
            ["on 256 CPUs", "`memory_limit` is 3.0 MiB", "raise it", "switch signals off", "undercurrent doctor"]
        {
            assert!(refusal.contains(words), "{words} in {refusal}");
        }
    }

    #[test]
    fn a_hundred_workloads_on_64_cpus_take_64_mib_at_most() {
        let at = |scale: u8| total(&maps(&format!("{{workloads: {{limit: 100}}, packets: {{scale: {scale}}}}}"), 64));
        assert!(at(2) < 64 * MIB, "{}", at(2));
        // Histograms of the highest scale are twice as long.
        assert!(at(3) < 112 * MIB, "{}", at(3));
    }

    #[test]
    fn the_defaults_fit_the_default_limit_on_any_number_of_cpus() {
        let defaults = total(&maps("{}", 512)) as u64;
        assert!(defaults < MemoryLimit::DEFAULT.bytes(), "{defaults}");
        assert_eq!(resolve("{}", Some(Ownership::Unified)).1.workloads(), Some(Workloads::default().limit));
    }

    #[test]
    fn named_functions_take_their_own_memory_and_no_other() {
        let without = maps("workloads: {limit: 100}", 64);
        let yaml = "{workloads: {limit: 100}, signals: {latency: {extra_layers: [a, b, c]}}}";
        let with = maps(yaml, 64);
        let map = |maps: &[MapSize]| bytes(maps, "EXTRA_LATENCY");
        // 102 slots, 16 shards, and a cell with its losses for each IP version.
        let function = 16 * 2 * (HISTOGRAM + PACKET_LOSSES * 8);
        assert_eq!((map(&without), map(&with)), (8, 102 * 3 * function));
        assert_eq!(total(&with) - total(&without), map(&with) - map(&without));
        assert_eq!(map(&resolve(yaml, None).1.maps(64)), 3 * function);
        let off = "signals: {latency: {enabled: false, extra_layers: [a, b, c]}}";
        assert_eq!(map(&maps(off, 64)), 8);
    }

    #[test]
    fn groups_take_memory_where_packets_are_grouped() {
        let grouped = "workloads: {limit: 100}\npackets: {group: {by: [interface], limit: 64}}\nsignals: {latency: {extra_layers: [a]}}";
        let without = grouped.replace("[interface]", "[]");
        let [without, with] = [&*without, grouped].map(|yaml| maps(yaml, 16));
        // 64 groups and 16 shards, with 16 receive points, 4 waits and 6 transmit stages.
        let histograms = 64 * 16 * 26 * HISTOGRAM;
        assert_eq!((bytes(&without, "GROUP_LATENCY"), bytes(&with, "GROUP_LATENCY")), (8, histograms));
        let named = [without, with].map(|maps| bytes(&maps, "EXTRA_LATENCY"));
        assert_eq!(named[1], named[0] / 102 * (102 + 64), "groups come after the slots");
        let off = "signals: {latency: {enabled: false}, receive_wait: {enabled: false}, transmit: {enabled: false}}";
        let off = format!("packets: {{group: {{by: [interface]}}}}\n{off}");
        assert_eq!(bytes(&maps(&off, 16), "GROUP_LATENCY"), 8);
    }

    #[test]
    fn signals_that_are_off_take_nothing_but_the_smallest_ring() {
        let all = signals::REGISTRY.iter().map(|entry| format!("{}: {{enabled: false}}", entry.name));
        let yaml = format!("signals: {{{}}}", all.collect::<Vec<_>>().join(", "));
        let off = resolve(&yaml, None).1.maps(64);
        assert!(off.iter().filter(|map| !["CGROUPS", "SAMPLES"].contains(&map.name)).all(|map| map.entries() == 1));
        assert!(total(&off) < 3 * 64 * 1024, "{}", total(&off));
    }
}
