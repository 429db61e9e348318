//! `undercurrent.network.receive.driver.duration`: from the card's receive stamp to the kernel's.

use aya_ebpf::{
    helpers::bpf_get_smp_processor_id,
    macros::map,
    maps::{Array, HashMap},
};
use undercurrent_ebpf::abi::{
    driver::{CARDS, CardCells, CardClock, Conversion, DriverLoss},
    interface::Interface,
};

use crate::kernel::{
    cells::{self, BEYOND, MMAPABLE},
    sample,
};

/// The places of cards, by what their interfaces are known by.
#[map]
static CARD_PLACES: HashMap<Interface, u32> = HashMap::with_max_entries(CARDS as u32, 0);

#[map]
static CARD_CLOCKS: Array<CardClock> = Array::with_max_entries(CARDS as u32, MMAPABLE);

/// By CPU, and then by the card's place.
#[map]
static DRIVER: Array<CardCells> = Array::with_max_entries(1, MMAPABLE);

/// The place of an interface's card, where it has one.
#[inline(always)]
pub fn card(interface: Interface) -> Option<u32> {
    // SAFETY: a place is one word, which does not change while it is there.
    unsafe { CARD_PLACES.get(&interface) }.copied()
}

/// A packet with the card's stamp leaves the driver, with the kernel's stamp, or zero for none.
#[inline(always)]
pub fn left(card: u32, stamp: u64, received: u64) {
    if received == 0 {
        return lost(card, DriverLoss::NoStamp);
    }
    let Some(weight) = sample::weight(received) else { return };
    let Some(cells) = here(card) else { return };
    let mut lost = |loss: DriverLoss| cells.lost[loss as usize] += weight;
    let Some(wall) = conversion(card).and_then(|conversion| conversion.wall(stamp)) else {
        return lost(DriverLoss::NoClock);
    };
    let duration = received.wrapping_sub(wall);
    if (duration as i64) < 0 {
        lost(DriverLoss::Negative);
    } else if duration >= BEYOND {
        // No driver takes so long: the clocks are not what they were.
        lost(DriverLoss::NoClock);
    } else {
        let _ = cells::record(&mut cells.duration, duration, weight);
    }
}

/// A packet that the card stamped is not measured.
#[inline(always)]
pub fn lost(card: u32, loss: DriverLoss) {
    if let Some(cells) = here(card) {
        cells.lost[loss as usize] += 1;
    }
}

/// What this CPU recorded of a card.
#[inline(always)]
fn here(card: u32) -> Option<&'static mut CardCells> {
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    // SAFETY: the entry lives as long as the program; each of its words has one writer, which does not run inside itself.
    DRIVER.get_ptr_mut(cpu * CARDS as u32 + card).map(|entry| unsafe { &mut *entry })
}

/// The conversion in use of a card's clock.
#[inline(always)]
fn conversion(card: u32) -> Option<Conversion> {
    let clock = CARD_CLOCKS.get_ptr(card)?;
    // SAFETY: an entry of the map, which lives as long as the program; volatile since user space writes it meanwhile, the
    // conversion that is not in use.
    unsafe {
        match (&raw const (*clock).current).read_volatile() {
            1 => Some((&raw const (*clock).conversions[0]).read_volatile()),
            2 => Some((&raw const (*clock).conversions[1]).read_volatile()),
            _ => None,
        }
    }
}
