//! `undercurrent.network.receive.driver.duration`: from the NIC's receive timestamp to the kernel's.

use aya_ebpf::{
    helpers::bpf_get_smp_processor_id,
    macros::map,
    maps::{Array, HashMap},
};
use undercurrent_ebpf::abi::{
    driver::{Conversion, DriverLoss, NICS, NicCells, NicClock},
    interface::Interface,
};

use crate::kernel::{
    cells::{self, BEYOND, MMAPABLE},
    sample,
};

/// The index of each interface's NIC.
#[map]
static NIC_INDICES: HashMap<Interface, u32> = HashMap::with_max_entries(NICS as u32, 0);

#[map]
static NIC_CLOCKS: Array<NicClock> = Array::with_max_entries(NICS as u32, MMAPABLE);

/// Cells by CPU, then by NIC.
#[map]
static DRIVER: Array<NicCells> = Array::with_max_entries(1, MMAPABLE);

/// Returns the index of an interface's NIC, if it has one.
#[inline(always)]
pub fn nic(interface: Interface) -> Option<u32> {
    // SAFETY: the value is one word, which does not change while it is in the map.
    unsafe { NIC_INDICES.get(&interface) }.copied()
}

/// Records a packet with a timestamp of its NIC. `received` is the kernel's timestamp, or zero.
#[inline(always)]
pub fn left(nic: u32, timestamp: u64, received: u64) {
    if received == 0 {
        return lost(nic, DriverLoss::NoTimestamp);
    }
    let Some(weight) = sample::weight(received) else { return };
    let Some(cells) = here(nic) else { return };
    let mut lost = |loss: DriverLoss| cells.lost[loss as usize] += weight;
    let Some(wall) = conversion(nic).and_then(|conversion| conversion.wall(timestamp)) else {
        return lost(DriverLoss::NoClock);
    };
    let duration = received.wrapping_sub(wall);
    if (duration as i64) < 0 {
        lost(DriverLoss::Negative);
    } else if duration >= BEYOND {
        // Longer than any driver takes: a clock was set.
        lost(DriverLoss::NoClock);
    } else {
        let _ = cells::record(&mut cells.duration, duration, weight);
    }
}

/// Counts a packet with a timestamp of its NIC that is not measured.
#[inline(always)]
pub fn lost(nic: u32, loss: DriverLoss) {
    if let Some(cells) = here(nic) {
        cells.lost[loss as usize] += 1;
    }
}

/// Returns the cells of a NIC on the current CPU.
#[inline(always)]
fn here(nic: u32) -> Option<&'static mut NicCells> {
    // SAFETY: the helper has no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    // SAFETY: the entry lives as long as the program. Each word has one writer, which does not interrupt its own run.
    DRIVER.get_ptr_mut(cpu * NICS as u32 + nic).map(|entry| unsafe { &mut *entry })
}

/// Returns the current conversion of a NIC's clock.
#[inline(always)]
fn conversion(nic: u32) -> Option<Conversion> {
    let clock = NIC_CLOCKS.get_ptr(nic)?;
    // SAFETY: an entry of the map, which lives as long as the program. Volatile, since user space writes the other conversion
    // meanwhile.
    unsafe {
        match (&raw const (*clock).current).read_volatile() {
            1 => Some((&raw const (*clock).conversions[0]).read_volatile()),
            2 => Some((&raw const (*clock).conversions[1]).read_volatile()),
            _ => None,
        }
    }
}
