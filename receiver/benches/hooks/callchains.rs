//! Compares the cost of a stack by the sidecar's sampling program with that of a callchain by the kernel's perf subsystem.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_sample_format::PERF_SAMPLE_CALLCHAIN,
    perf_sw_ids::PERF_COUNT_SW_CPU_CLOCK, perf_type_id::PERF_TYPE_SOFTWARE,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use undercurrent::{
    config::{File, Flags, Settings},
    requirements::{self, Requirements},
    signals::network_functions::SampleSource,
};

use crate::wire::{Traffic, Wire};

/// The period of samples, and one without samples during a measurement.
const OFTEN: Duration = Duration::from_micros(250);
const RARELY: Duration = Duration::from_secs(10);
/// Pages of a ring after its first page: more than the samples of a measurement need.
const PAGES: usize = 256;
const PAGE: usize = 4096;
/// `PERF_RECORD_SAMPLE` of `include/uapi/linux/perf_event.h`.
const SAMPLE: u32 = 9;
/// The offset of `data_head` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;

/// Prints the cost of a sample by each method as the longer time of the traffic, divided by the samples.
pub fn compare(wire: &mut Wire, rounds: u32, requests: u32) -> anyhow::Result<()> {
    let (mut settings, _) = Settings::resolve(Flags::default(), &|_| None, File::default());
    settings.signals.disable_all();
    settings.signals.network_functions.enabled = true;
    settings.signals.network_functions.source = SampleSource::CpuClock;
    let (host, _) = requirements::host()?;
    let kernel = Requirements::new(&settings, None).listen(host)?;
    let online = aya::util::online_cpus().map_err(|(_, error)| error)?;
    let every = |period| kernel.cpu_sampling().set_clock(period);
    let samples = || anyhow::Ok(kernel.runs()?.values().map(|runs| runs.count).sum::<u64>());
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        every(RARELY)?;
        let without = time(wire, requests)?;
        let events = online.iter().map(|cpu| Event::open(*cpu)).collect::<anyhow::Result<Vec<_>>>()?;
        let with_perf = time(wire, requests)?;
        let taken: u64 = events.iter().map(Event::samples).sum();
        drop(events);
        costs[0].push(cost(with_perf, without, taken)?);
        every(OFTEN)?;
        let before = samples()?;
        let with_program = time(wire, requests)?;
        costs[1].push(cost(with_program, without, samples()? - before)?);
    }
    for (name, mut costs) in ["perf's callchain", "the sidecar's program, with `bpf_get_stack`"].into_iter().zip(costs)
    {
        costs.sort_by(f64::total_cmp);
        let [least, median, most] = [0, costs.len() / 2, costs.len() - 1].map(|place| costs[place]);
        println!("{name}: {median:.0} ns a sample [{least:.0}, {most:.0}], {rounds} rounds");
    }
    Ok(())
}

fn time(wire: &mut Wire, requests: u32) -> anyhow::Result<Duration> {
    let start = Instant::now();
    wire.exchange(Traffic::UdpIpv4, requests)?;
    Ok(start.elapsed())
}

fn cost(with: Duration, without: Duration, samples: u64) -> anyhow::Result<f64> {
    ensure!(samples > 10, "{samples} samples are too few: pass more --requests");
    Ok((with.as_secs_f64() - without.as_secs_f64()) * 1e9 / samples as f64)
}

/// An event of a CPU that writes callchains of kernel code into a ring.
struct Event {
    ring: *mut u8,
    _descriptor: OwnedFd,
}

impl Event {
    fn open(cpu: u32) -> anyhow::Result<Self> {
        // SAFETY: zeros are valid for every field.
        let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
        attributes.type_ = PERF_TYPE_SOFTWARE as u32;
        attributes.size = u32::try_from(size_of::<perf_event_attr>())?;
        attributes.config = PERF_COUNT_SW_CPU_CLOCK as u64;
        attributes.__bindgen_anon_1.sample_period = u64::try_from(OFTEN.as_nanos())?;
        attributes.sample_type = PERF_SAMPLE_CALLCHAIN as u64;
        attributes.set_exclude_callchain_user(1);
        attributes.__bindgen_anon_2.wakeup_events = u32::MAX;
        // SAFETY: the attributes are valid, and have their size.
        let opened = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)
        };
        ensure!(opened >= 0, "cannot open a perf event: {}", io::Error::last_os_error());
        // SAFETY: the kernel returned this descriptor, and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(i32::try_from(opened)?) };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address.
        let ring = unsafe { mmap(ptr::null_mut(), (1 + PAGES) * PAGE, protection, MapFlags::SHARED, &descriptor, 0) };
        let ring = ring.with_context(|| format!("cannot map the ring of event {}", descriptor.as_raw_fd()))?;
        Ok(Self { ring: ring.cast(), _descriptor: descriptor })
    }

    /// Returns the number of samples in the ring.
    fn samples(&self) -> u64 {
        let word = |offset: usize| {
            let place = self.ring.wrapping_add(offset).cast::<u64>();
            // SAFETY: the place is inside of the mapping and aligned to the word.
            unsafe { place.read_volatile() }
        };
        let head = usize::try_from(word(DATA_HEAD)).unwrap_or(0).min(PAGES * PAGE - size_of::<u64>());
        let (mut offset, mut samples) = (0, 0);
        while offset < head {
            // `struct perf_event_header`: type, flags, and the size of the record. Records are aligned to a word.
            let header = word(PAGE + offset);
            samples += u64::from(header as u32 == SAMPLE);
            offset += (header >> 48) as usize;
        }
        samples
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and nothing refers to it any more.
        let _ = unsafe { munmap(self.ring.cast(), (1 + PAGES) * PAGE) };
    }
}
