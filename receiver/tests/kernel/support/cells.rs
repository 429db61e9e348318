//! Runs the sidecar's recording code in the kernel with durations of a test.

use std::array;

use aya::{
    Ebpf, Pod,
    maps::Array,
    programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _},
};
use undercurrent::{loader::loader, telemetry::Scale};
use undercurrent_ebpf::abi::{
    by_cpu::Entry,
    histogram::{BUCKETS, HistogramCell},
};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/resolution.bpf.o");

/// The number of words of a cell. The sum comes first.
const CELL: usize = size_of::<HistogramCell>() / size_of::<u64>();

/// Programs that record durations at one scale, attached to no hook. Dropping the value removes them.
pub struct Cells(Ebpf);

/// The changes of a cell.
#[derive(Debug, PartialEq, Eq)]
pub struct Added {
    /// The addition to the sum, in nanoseconds.
    pub sum: u64,
    /// The changed buckets with their additions.
    pub slots: Vec<(usize, u64)>,
}

/// The words of a CPU.
#[derive(Clone, Copy)]
struct Words<const COUNT: usize>(Entry<[u64; COUNT]>);

// SAFETY: words, which are never read beyond `COUNT`.
unsafe impl<const COUNT: usize> Pod for Words<COUNT> {}

impl Cells {
    /// Loads the programs with the tables of a scale.
    pub fn load(scale: Scale) -> Self {
        let (guesses, bounds) = (scale.guesses(), scale.bounds());
        let mut ebpf = loader::without_types()
            .override_global("histogram.guesses", &guesses[..], true)
            .override_global("histogram.bounds", &bounds[..], true)
            .load(OBJECT)
            .unwrap();
        for (_, program) in ebpf.programs_mut() {
            <&mut RawTracePoint>::try_from(program).unwrap().load().unwrap();
        }
        Self(ebpf)
    }

    /// Returns the bucket of a duration in nanoseconds as a byte offset, or the duration if it exceeds the range.
    pub fn slot(&self, nanoseconds: u64) -> u64 {
        self.run("bucket", nanoseconds);
        let [slot] = self.words("BUCKET");
        slot
    }

    /// Records a duration, and returns the changes.
    pub fn record(&self, nanoseconds: u64) -> Added {
        self.added("record", "RECORDED", nanoseconds)
    }

    /// Records a duration of any length, and returns the changes.
    pub fn record_any(&self, nanoseconds: u64) -> Added {
        self.added("record_any", "RECORDED_ANY", nanoseconds)
    }

    fn added(&self, program: &str, map: &str, nanoseconds: u64) -> Added {
        let before: [u64; CELL] = self.words(map);
        self.run(program, nanoseconds);
        let after: [u64; CELL] = self.words(map);
        let [sum, slots @ ..]: [u64; CELL] = array::from_fn(|word| after[word].wrapping_sub(before[word]));
        let slots: [u64; BUCKETS] = slots;
        Added { sum, slots: slots.into_iter().enumerate().filter(|(_, count)| *count != 0).collect() }
    }

    /// Runs a program on the CPU of the map entries that the test reads.
    fn run(&self, program: &str, nanoseconds: u64) {
        let program: &RawTracePoint = self.0.program(program).unwrap().try_into().unwrap();
        let mut options = RawTracePointRunOptions { cpu: Some(0), ..Default::default() };
        options.args[0] = nanoseconds;
        program.test_run(options).unwrap();
    }

    /// Returns the words of CPU 0 in a map.
    fn words<const COUNT: usize>(&self, map: &str) -> [u64; COUNT] {
        let map: Array<_, Words<COUNT>> = self.0.map(map).unwrap().try_into().unwrap();
        map.get(&0, 0).unwrap().0.0
    }
}
