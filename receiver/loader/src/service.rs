//! The privileged half of the kernel boundary. It creates the maps, attaches and detaches programs, and writes maps
//! that cannot be mapped into memory. Its only external input is the kernel's BTF.

mod tables;

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{
    Btf, Ebpf,
    maps::{Array, Map, MapError, Queue},
    programs::Program,
};
use undercurrent_channel::{Call as _, Reply};
use undercurrent_ebpf::abi::served;
use undercurrent_kernel::{
    LoadOptions,
    cpu_events::CpuEvent,
    groups,
    hooks::{self, Hook},
    host::Host,
    messages::{
        Answer, Facts, FindNics, FindText, FreeGroup, Freeze, Get, Insert, List, Load, Loaded, NoteNics, OpenClock,
        ReadRuns, ReleaseTypes, Remove, ReopenCounters, Request, Serve, ServeFunctions, Set, SetPeriods, Table,
    },
    nics::{Clock, NicInventory},
    plan::{Outcome, Status},
    statistics::Runs,
    text::Text,
};

use self::tables::open;
use super::{
    LoadError,
    attach::{self, Attaching},
    counters::Counters,
    cpu_events::CpuEvents,
    extra::{self, Named},
    fields::ResolvedField,
    object::{self, KernelFacts, Programs},
    plan,
    resolved::{self, Resolved},
    statistics::Links,
    timestamping::Timestamping,
};
use crate::{causes::chain, options::AttachKind};

/// The loaded programs and their maps. Dropping it, or the end of the process, detaches all programs.
pub struct Service {
    ebpf: Ebpf,
    /// The part of the kernel's BTF that attaching needs. It takes megabytes.
    types: Option<Btf>,
    host: Host,
    avoid: Vec<AttachKind>,
    /// True if programs of a cgroup can read the receiving socket of a packet.
    socket_of_packet: bool,
    /// The hooks that may be attached, in order.
    hooks: Vec<&'static Hook>,
    functions: Vec<Named>,
    /// The functions that samples are classified by.
    classified: Vec<String>,
    cpu_events: CpuEvents,
    counters: Counters,
    /// The hooks that are attached only if the machine has counters.
    counter_hooks: Vec<&'static Hook>,
    outcomes: Vec<Outcome>,
    nics: NicInventory,
    /// The kprobe links, searched at the first read of runs after attaching.
    links: Option<Links>,
    /// Keeps receive timestamps enabled while a hook compares them with the clock.
    timestamping: Option<Timestamping>,
}

impl Service {
    /// Creates the maps and prepares the programs; no program is attached.
    ///
    /// # Errors
    /// If nothing can be measured.
    pub fn load(host: Host, required: &LoadOptions<'_>) -> Result<(Self, Facts), LoadError> {
        // Timestamps are enabled first: the kernel applies the change some milliseconds later.
        let nics = if required.hooks.contains(&&hooks::DRIVER) { NicInventory::now() } else { NicInventory::default() };
        let timestamping = enable_timestamps(required.hooks.iter().copied().filter(|hook| is_needed(hook, &nics)));
        let Resolved {
            fields,
            types,
            socket_storage,
            tcp_sockets,
            task_registers,
            casts,
            arguments,
            drop_reasons,
            extra,
            task_clock,
        } = Resolved::of(required)?;
        let counters = required.counters.as_ref().map(Counters::open).unwrap_or_default();
        let socket_of_packet =
            casts.context.is_some() && socket_storage && !required.avoid.contains(&AttachKind::Cgroup);
        let kernel = KernelFacts {
            fields: &fields,
            ownership: required.ownership,
            socket_storage,
            tcp_sockets,
            task_registers,
            casts,
            socket_of_packet,
            arguments,
            extra: &extra,
            counters: counters.bits(),
            cpus: host.cpus,
        };
        let (sizing, constants, maps) = (required.sizing, &required.constants, &required.maps);
        let settings = object::Settings { sizing, constants, maps, kernel };
        let programs = Programs::new(&settings)?;
        let mut ebpf = object::load(&settings, &programs)
            .map_err(|error| LoadError::Maps(Box::new(error), host.missing_capabilities.clone()))?;
        let counters = pass(counters, &required.siblings, &mut ebpf);
        let facts = Facts {
            fields: fields.iter().map(ResolvedField::fact).collect(),
            socket_storage,
            tcp_sockets,
            drop_reasons,
            functions: extra.iter().map(|named| named.function.clone()).collect(),
            nics: nics.clone(),
            task_clock,
            counters: counters.bits(),
        };
        let service = Self {
            ebpf,
            types: Some(types),
            host,
            avoid: required.avoid.to_vec(),
            socket_of_packet,
            hooks: required.hooks.to_vec(),
            functions: extra,
            classified: required.classified.to_vec(),
            cpu_events: CpuEvents::new(required.interrupts),
            counters,
            counter_hooks: required.counter_hooks.to_vec(),
            outcomes: Vec::new(),
            nics,
            links: None,
            timestamping,
        };
        Ok((service, facts))
    }

    /// Duplicates the descriptors of the maps that user space reads: arrays and ring buffers, without the variables of the programs,
    /// whose names begin with a dot.
    ///
    /// # Errors
    /// If the process has reached its limit of open files.
    pub fn maps(&self) -> std::io::Result<Vec<(String, OwnedFd)>> {
        let readable = self.ebpf.maps().filter_map(|(name, map)| match map {
            Map::Array(data) | Map::RingBuf(data) if !name.starts_with('.') => Some((name.to_owned(), data)),
            _ => None,
        });
        readable.map(|(name, data)| Ok((name, data.fd().as_fd().try_clone_to_owned()?))).collect()
    }

    /// Returns the names of the maps that user space reads, and facts about the kernel, with the descriptors of the maps.
    ///
    /// # Errors
    /// If the process has reached its limit of open files.
    pub fn loaded(&self, facts: Facts) -> Result<(Loaded, Vec<OwnedFd>), String> {
        let (names, descriptors) = self.maps().map_err(|error| error.to_string())?.into_iter().unzip();
        Ok(((names, facts), descriptors))
    }

    /// Attaches hooks. Skips hooks that are attached, and hooks that no NIC of this machine can trigger.
    fn serve(&mut self, hooks: &[&'static Hook]) -> Vec<Outcome> {
        let (needed, mut outcomes) = (self.needed(hooks), std::mem::take(&mut self.outcomes));
        self.attaching(|attaching| plan::serve_all(attaching, needed.into_iter(), &mut outcomes));
        self.outcomes = outcomes;
        self.outcomes.sort_by_key(|outcome| self.hooks.iter().position(|hook| hook.name == outcome.hook));
        if let Err(error) = self.write_served() {
            tracing::warn!("cannot measure receive waits and the path of UDP packets to the qdisc: {error}");
        }
        self.outcomes.clone()
    }

    fn needed(&self, hooks: &[&'static Hook]) -> Vec<&'static Hook> {
        let counts = self.counters.bits() != 0;
        let is_needed = |hook: &&'static Hook| {
            hooks.contains(hook) && is_needed(hook, &self.nics) && (counts || !self.counter_hooks.contains(hook))
        };
        self.hooks.iter().copied().filter(is_needed).collect()
    }

    fn serve_functions(&mut self) -> Vec<Outcome> {
        let functions = self.functions.clone();
        let serve = |attaching: &mut Attaching<'_>| {
            functions.iter().enumerate().map(|(number, named)| extra::serve(attaching, number, named)).collect()
        };
        let outcomes: Vec<_> = self.attaching(serve);
        self.outcomes.extend(outcomes);
        self.outcomes.clone()
    }

    /// Calls `attach` with the programs. After the BTF is released, programs that need it cannot attach.
    fn attaching<T>(&mut self, attach: impl FnOnce(&mut Attaching<'_>) -> T) -> T {
        self.links = None;
        attach(&mut Attaching {
            ebpf: &mut self.ebpf,
            types: self.types.as_ref(),
            host: &self.host,
            avoid: &self.avoid,
            socket_of_packet: self.socket_of_packet,
            cpu_events: &mut self.cpu_events,
        })
    }

    /// Records the NICs that timestamp packets. The hook for NIC timestamps is attached while there is at least one.
    fn note_nics(&mut self, found: NicInventory) -> Result<Vec<Outcome>, LoadError> {
        self.nics = found;
        let hook = &hooks::DRIVER;
        if is_needed(hook, &self.nics) {
            if self.outcomes.iter().all(|outcome| outcome.hook != hook.name) {
                self.timestamping = self.timestamping.take().or_else(|| enable_timestamps([hook].into_iter()));
                let kept = self.types.replace(resolved::types_of(&[hook])?);
                self.serve(&[hook]);
                self.types = kept;
            }
        } else {
            let programs = hook.alternates.iter().flat_map(|alternate| alternate.programs);
            programs.for_each(|program| attach::detach(&mut self.ebpf, program));
            self.outcomes.retain(|outcome| outcome.hook != hook.name);
        }
        Ok(self.outcomes.clone())
    }

    fn runs(&mut self) -> BTreeMap<String, Runs> {
        let links = self.links.get_or_insert_with(Links::of_this_process);
        let runs = self.ebpf.programs().filter_map(|(name, program)| {
            let runs = links.runs(program.fd().ok()?)?;
            Some((name.to_owned(), runs))
        });
        runs.collect()
    }

    fn set_periods(&mut self, event: CpuEvent, periods: &[(u32, u64)]) -> Result<(), String> {
        let name = event.program();
        let Some(Program::PerfEvent(program)) = self.ebpf.program_mut(name) else {
            return Err(format!("the embedded eBPF object has no program `{name}`"));
        };
        for (cpu, period) in periods {
            let set = self.cpu_events.set(event, program, *cpu, *period);
            set.map_err(|error| format!("cannot attach `{name}` to CPU {cpu}: {}", chain(&error)))?;
        }
        Ok(())
    }

    /// Executes a request that reads or writes a map.
    fn access_map(&mut self, request: Request) -> Reply {
        match request {
            Request::Set(Set { variable, value }) => Set::reply(self.set(variable.section(), value)),
            Request::Insert(Insert { table, key, value }) => {
                Insert::reply(self.with(table, |map| open(table, map)?.insert(&key, &value)))
            }
            Request::Remove(Remove { table, key }) => {
                Remove::reply(self.with(table, |map| open(table, map)?.remove(&key)))
            }
            Request::Get(Get { table, key }) => Get::reply(self.with(table, |map| open(table, map)?.get(&key))),
            Request::List(List { table }) => List::reply(self.with(table, |map| open(table, map)?.entries())),
            Request::FreeGroup(FreeGroup { number }) => FreeGroup::reply(self.free_group(number)),
            _ => Reply::failed("this request concerns no map"),
        }
    }

    fn set(&mut self, section: &'static str, value: u64) -> Result<(), MapError> {
        Array::<_, u64>::try_from(self.map(section)?).and_then(|mut word| word.set(0, value, 0))
    }

    fn free_group(&mut self, number: u32) -> Result<(), MapError> {
        Queue::<_, u32>::try_from(self.map(groups::FREE.name)?).and_then(|mut free| free.push(number, 0))
    }

    fn with<T>(&mut self, table: Table, act: impl FnOnce(&mut Map) -> Result<T, MapError>) -> Result<T, MapError> {
        act(self.map(table.map())?)
    }

    fn map(&mut self, name: &str) -> Result<&mut Map, MapError> {
        self.ebpf.map_mut(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
    }

    /// Tells the programs which hooks are served.
    fn write_served(&mut self) -> Result<(), MapError> {
        let bits = [
            (&hooks::SOCKET_ENQUEUED, None, served::ENQUEUED),
            (&hooks::SOCKET_ARRIVAL, None, served::ENQUEUED),
            (&hooks::TRANSMIT_SEND, None, served::SENT),
            (&hooks::DATAGRAM_READER, Some(hooks::CGROUP_READ), served::READERS),
        ];
        let serves = |hook: &Hook, alternate: Option<&str>| {
            self.outcomes.iter().any(|outcome| {
                outcome.hook == hook.name
                    && outcome.status != Status::Unavailable
                    && alternate.is_none_or(|alternate| outcome.by.as_deref() == Some(alternate))
            })
        };
        let served = bits.into_iter().filter(|(hook, alternate, _)| serves(hook, *alternate));
        let bits = served.fold(0, |bits, (_, _, bit)| bits | bit);
        self.set(".data.served", bits)
    }
}

impl Answer for Service {
    fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Serve(Serve { hooks }) => {
                let named = |hook: &&'static Hook| hooks.iter().any(|name| *name == hook.name);
                let named: Vec<_> = self.hooks.iter().copied().filter(named).collect();
                Serve::success(self.serve(&named))
            }
            Request::ServeFunctions(_) => ServeFunctions::success(self.serve_functions()),
            Request::ReleaseTypes(_) => {
                self.types = None;
                release_free_memory();
                ReleaseTypes::success(())
            }
            Request::FindNics(_) => FindNics::success(NicInventory::now()),
            Request::NoteNics(NoteNics { found }) => NoteNics::reply(self.note_nics(found)),
            Request::OpenClock(OpenClock { number }) => {
                OpenClock::reply_with(Clock::open(number).map(|clock| ((), vec![clock.into()])))
            }
            Request::ReadRuns(_) => ReadRuns::success(self.runs()),
            Request::SetPeriods(SetPeriods { event, periods }) => SetPeriods::reply(self.set_periods(event, &periods)),
            Request::ReopenCounters(ReopenCounters { cpus }) => {
                ReopenCounters::reply(self.counters.reopen(&cpus, &self.ebpf))
            }
            Request::FindText(_) => FindText::reply(Text::read(&self.classified)),
            Request::Load(_) => Load::reply(Err("the programs are loaded already")),
            Request::Freeze(_) => Freeze::reply(Err("this process keeps its capabilities")),
            request => self.access_map(request),
        }
    }
}

/// Returns the free memory of the heap to the kernel. Loading uses megabytes, and the allocator would keep most of them.
fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Passes the counters and the topology of the CPUs to the programs. Returns the counters that programs can read.
fn pass(counters: Counters, siblings: &[Option<u32>], ebpf: &mut Ebpf) -> Counters {
    if counters.bits() == 0 {
        return counters;
    }
    let inserted = counters.insert(ebpf).map_err(|error| error.to_string());
    let mut topology = || {
        let map =
            ebpf.map_mut("SIBLINGS").ok_or_else(|| "the embedded eBPF object has no map `SIBLINGS`".to_owned())?;
        let mut map = Array::<_, u32>::try_from(map).map_err(|error| error.to_string())?;
        let mut known = (0..).zip(siblings).filter_map(|(cpu, sibling)| Some((cpu, (*sibling)? + 1)));
        known.try_for_each(|(cpu, sibling)| map.set(cpu, sibling, 0)).map_err(|error| error.to_string())
    };
    match inserted.and_then(|()| topology()) {
        Ok(()) => counters,
        Err(error) => {
            tracing::warn!("cannot read the processor's counters: {error}");
            Counters::default()
        }
    }
}

/// Returns false for the driver hook if no NIC timestamps packets: its programs only compare hardware timestamps.
fn is_needed(hook: &Hook, nics: &NicInventory) -> bool {
    *hook != hooks::DRIVER || !nics.usable.is_empty()
}

/// Enables receive timestamps in the kernel if a hook compares them with the clock.
fn enable_timestamps(mut hooks: impl Iterator<Item = &'static Hook>) -> Option<Timestamping> {
    if !hooks.any(|hook| hook.reads_timestamps) {
        return None;
    }
    let held = Timestamping::hold();
    held.inspect_err(|error| tracing::warn!("cannot enable receive timestamps; receive latency is missing: {error}"))
        .ok()
}
