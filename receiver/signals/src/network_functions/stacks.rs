//! Single stacks of network work, for flame graphs.

use undercurrent_ebpf::abi::sample::SampleCells;

use super::{CELLS, EVENTS, RING, Settings, classifier::Classifier, collector::parse};
use crate::kernel::{Kernel, KernelError, maps::ByCpu, ring::Ring};

/// The stacks of network work that the programs write.
pub struct Stacks {
    ring: Ring,
    classifier: Classifier,
    cells: ByCpu<SampleCells>,
}

impl Stacks {
    /// Takes the ring of stacks. Needs a tokio runtime.
    ///
    /// # Errors
    /// If a map cannot be opened, or the kernel hides the addresses of functions.
    pub fn open(kernel: &Kernel, settings: &Settings) -> Result<Self, KernelError> {
        Ok(Self {
            ring: kernel.ring(RING.name)?,
            classifier: Classifier::new(settings, kernel.text()?),
            cells: kernel.by_cpu(&CELLS)?,
        })
    }

    /// Calls `visit` with the event and the addresses of each stack in the ring: the innermost function first, the function of the
    /// event last. An address is within its function.
    pub fn drain(&mut self, mut visit: impl FnMut(&'static str, &[u64])) {
        let Self { ring, classifier, .. } = self;
        let mut add = |record: &[u8]| {
            let Some((_, addresses)) = parse(record) else { return };
            let classified = classifier.classify(addresses.clone());
            let Some(work) = classified.work else { return };
            // The address of a caller is that of its next instruction.
            let inside = addresses.take(classified.frames).enumerate();
            let calls: Vec<u64> = inside.map(|(depth, address)| address.wrapping_sub(u64::from(depth > 0))).collect();
            visit(EVENTS[work.event].name, &calls);
        };
        while ring.next(&mut add).is_some() {}
    }

    /// Returns the number of stacks that are missing.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let mut lost = 0;
        self.cells.for_each(|_, cells| lost += cells.full + cells.unreadable);
        lost
    }
}
