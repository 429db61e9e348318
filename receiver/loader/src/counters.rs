//! The perf events of the processor's counters, one for each CPU.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
};

use aya::{Ebpf, maps::Map};
use aya_obj::generated::{PERF_FLAG_FD_CLOEXEC, bpf_cmd, perf_event_attr, perf_hw_id, perf_sw_ids, perf_type_id};
use caps::Capability;
use undercurrent_ebpf::abi::processor::Counter;
use undercurrent_kernel::counters::{Events, Wanted};

use crate::{descriptors, privileges};

/// Returns the type and the number of the perf event of a counter.
const fn perf_event(events: Events, counter: Counter) -> (perf_type_id, u64) {
    match events {
        Events::Hardware => (
            perf_type_id::PERF_TYPE_HARDWARE,
            match counter {
                Counter::Cycles => perf_hw_id::PERF_COUNT_HW_CPU_CYCLES as u64,
                Counter::Instructions => perf_hw_id::PERF_COUNT_HW_INSTRUCTIONS as u64,
                Counter::CacheReferences => perf_hw_id::PERF_COUNT_HW_CACHE_REFERENCES as u64,
                Counter::CacheMisses => perf_hw_id::PERF_COUNT_HW_CACHE_MISSES as u64,
            },
        ),
        Events::Software => (
            perf_type_id::PERF_TYPE_SOFTWARE,
            match counter {
                Counter::Cycles | Counter::Instructions => perf_sw_ids::PERF_COUNT_SW_CPU_CLOCK as u64,
                Counter::CacheReferences => perf_sw_ids::PERF_COUNT_SW_PAGE_FAULTS as u64,
                Counter::CacheMisses => perf_sw_ids::PERF_COUNT_SW_CONTEXT_SWITCHES as u64,
            },
        ),
    }
}

/// Returns the name of the map with the events of a counter.
const fn map(counter: Counter) -> &'static str {
    match counter {
        Counter::Cycles => "CYCLES",
        Counter::Instructions => "INSTRUCTIONS",
        Counter::CacheReferences => "CACHE_REFERENCES",
        Counter::CacheMisses => "CACHE_MISSES",
    }
}

/// Open events. Dropping them stops the counters.
#[derive(Default)]
pub struct Counters {
    kind: Option<Events>,
    events: BTreeMap<(Counter, u32), OwnedFd>,
}

impl Counters {
    /// Opens the events of every CPU that is online. Leaves out counters that the processor lacks, and all without cycles.
    #[must_use]
    pub fn open(wanted: &Wanted) -> Self {
        let (online, kind) = (aya::util::online_cpus().unwrap_or_default(), wanted.events);
        let mut opened = Self { kind: Some(kind), events: BTreeMap::new() };
        for counter in wanted.counters() {
            let of_cpus = online.iter().map(|cpu| Ok(((counter, *cpu), open(perf_event(kind, counter), *cpu)?)));
            match of_cpus.collect::<io::Result<Vec<_>>>() {
                Ok(events) => opened.events.extend(events),
                Err(error) => {
                    if error.raw_os_error() == Some(libc::EMFILE) {
                        tracing::warn!(
                            "cannot open the counter {counter:?} on every CPU: {error}; {}",
                            descriptors::REMEDY
                        );
                    } else {
                        tracing::debug!("the counter {counter:?} is not available: {error}");
                    }
                    if counter == Counter::Cycles {
                        return Self::default();
                    }
                }
            }
        }
        opened
    }

    /// Returns the bits of the open counters.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.events.keys().fold(0, |bits, (counter, _)| bits | counter.bit())
    }

    /// Passes the events to the programs.
    ///
    /// # Errors
    /// If the object lacks a map, or the kernel refuses an event.
    pub fn insert(&self, ebpf: &Ebpf) -> io::Result<()> {
        self.events.iter().try_for_each(|((counter, cpu), event)| insert(ebpf, *counter, *cpu, event))
    }

    /// Opens the events of CPUs again, after the kernel has stopped them for good because the CPU went offline. Skips CPUs that are
    /// offline.
    ///
    /// # Errors
    /// If the kernel refuses an event.
    pub fn reopen(&mut self, cpus: &[u32], ebpf: &Ebpf) -> io::Result<()> {
        let Some(kind) = self.kind else { return Ok(()) };
        let bits = self.bits();
        for counter in Counter::ALL.into_iter().filter(|counter| bits & counter.bit() != 0) {
            for cpu in cpus {
                match open(perf_event(kind, counter), *cpu) {
                    Ok(event) => {
                        insert(ebpf, counter, *cpu, &event)?;
                        self.events.insert((counter, *cpu), event);
                    }
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Passes an event to the programs.
fn insert(ebpf: &Ebpf, counter: Counter, cpu: u32, event: &OwnedFd) -> io::Result<()> {
    let name = map(counter);
    let Some(Map::PerfEventArray(data)) = ebpf.map(name) else {
        return Err(io::Error::other(format!("the embedded eBPF object has no map `{name}`")));
    };
    update(data.fd().as_fd(), cpu, event.as_raw_fd())
}

/// Opens an event that counts all tasks of a CPU.
fn open((kind, config): (perf_type_id, u64), cpu: u32) -> io::Result<OwnedFd> {
    // SAFETY: all bytes of the structure may be zero.
    let mut attributes = unsafe { std::mem::zeroed::<perf_event_attr>() };
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.type_ = kind as u32;
    attributes.config = config;
    let any_process: libc::pid_t = -1;
    let no_group: libc::c_int = -1;
    let call = || {
        // SAFETY: the structure lives during the call, and its size is correct.
        unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                any_process,
                cpu.cast_signed(),
                no_group,
                libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
            )
        }
    };
    // Debian's and Ubuntu's kernels require the capability for perf events.
    match privileges::with(Capability::CAP_SYS_ADMIN, call) {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call returned a new descriptor.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }),
    }
}

/// `struct` of `BPF_MAP_UPDATE_ELEM` in `union bpf_attr` (include/uapi/linux/bpf.h).
#[repr(C)]
struct Update {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Sets the event at an index of a map. aya has no type for arrays of counting events.
fn update(map: BorrowedFd<'_>, cpu: u32, event: RawFd) -> io::Result<()> {
    let (key, value) = (cpu, event);
    let attributes = Update {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: (&raw const key).addr() as u64,
        value: (&raw const value).addr() as u64,
        flags: 0,
    };
    let command = bpf_cmd::BPF_MAP_UPDATE_ELEM as libc::c_long;
    // SAFETY: the structure, the key and the value live during the call, and the size is the structure's.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attributes, size_of::<Update>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
