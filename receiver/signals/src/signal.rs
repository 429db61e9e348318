//! An enabled signal, and the context in which it is opened.

use std::{cell::OnceCell, time::Instant};

use undercurrent_ebpf::abi::softirq::SoftirqCells;

use crate::{
    Estimates, LossConditions, ReadError, SOFTIRQS, Settings, SharedCpuTimes,
    kernel::{Kernel, KernelError, maps::ByCpu, ring::Watch},
    options::Packets,
    packets::SharedGrouping,
    reader::{PowerMeters, SoftirqThreads},
    telemetry::{Attributes, Descriptor, Exemplar, Readings, SpanData, UnixNanos},
    workloads::{Files, Slot, Workloads},
};

/// An enabled signal.
pub trait Signal {
    /// Appends the cumulative measurements, grouped by workload.
    ///
    /// # Errors
    /// If a file or map of the kernel cannot be read. The other signals continue.
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError>;

    /// Adapts to the measurements of all signals at one tick, after every signal has been read.
    fn adapt(&mut self, _: &Readings) {}

    /// Adopts the settings that change while the sidecar runs. The others are those of the start.
    fn reconfigure(&mut self, _: &Settings) {}

    /// Clears the measurements of a slot before another workload receives it. The outputs have delivered all of them.
    fn forget(&mut self, _: Slot) {}

    /// Returns the time of the next reading between two snapshots; `None` if the signal needs none.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Reads between two snapshots.
    fn sample(&mut self) {}

    /// Returns a handle that waits for spans; `None` if the signal has no spans.
    fn watch(&mut self) -> Option<Watch> {
        None
    }

    /// Returns the spans since the last call.
    fn spans(&mut self) -> Vec<Traced> {
        Vec::new()
    }
}

/// A signal that consists of several.
pub struct Several(pub Vec<Box<dyn Signal>>);

impl Signal for Several {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.0.iter_mut().try_for_each(|signal| signal.read(workloads, readings))
    }

    fn forget(&mut self, slot: Slot) {
        self.0.iter_mut().for_each(|signal| signal.forget(slot));
    }
}

/// The spans of an event, and its measurement in a histogram.
pub struct Traced {
    /// The slot of the workload.
    pub slot: Slot,
    /// The spans, each after its parent.
    pub spans: Vec<SpanData>,
    /// The metric of the histogram.
    pub metric: &'static Descriptor,
    /// The attributes of the histogram's point.
    pub attributes: Attributes,
    /// The measurement with the first span.
    pub exemplar: Exemplar,
}

/// The context for opening a signal.
pub struct OpenContext<'a> {
    /// The kernel, with attached programs.
    pub kernel: &'a Kernel,
    /// The settings of all signals.
    pub settings: &'a Settings,
    /// The settings that packet signals share.
    pub packets: &'a Packets,
    /// The files of cgroups and processes. `None` if no cgroup hierarchy is mounted.
    pub files: Option<&'a Files>,
    /// The power meters.
    pub meters: &'a PowerMeters,
    /// The kernel's threads for softirqs.
    pub softirq_threads: &'a SoftirqThreads,
    /// CPU times, once a signal has opened them.
    pub cpu_times: &'a OnceCell<SharedCpuTimes>,
    /// The estimates of CPU time, once their signal is open.
    pub estimates: &'a OnceCell<Estimates>,
    /// The workloads.
    pub workloads: &'a Workloads,
    /// The grouping keys besides the workload.
    pub grouping: Option<&'a SharedGrouping>,
    /// The conditions of losses.
    pub losses: LossConditions,
    /// Start time of the cells.
    pub start: UnixNanos,
}

impl OpenContext<'_> {
    /// Opens the cells of the network softirqs.
    ///
    /// # Errors
    /// If the map cannot be mapped into memory.
    pub(super) fn softirqs(&self) -> Result<ByCpu<SoftirqCells>, KernelError> {
        self.kernel.by_cpu(&SOFTIRQS)
    }
}
