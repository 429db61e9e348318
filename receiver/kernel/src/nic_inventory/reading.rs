//! Combined readings of a NIC's clock and the wall clock, with the ioctls that `phc2sys` uses.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
};

use libc::{ptp_clock_time, ptp_sys_offset, ptp_sys_offset_extended, ptp_sys_offset_precise};
use rustix::{
    io::Errno,
    ioctl::{Opcode, Updater, ioctl},
};

const NANOSECONDS: i64 = 1_000_000_000;
/// The number of readings per measurement. The fastest one counts, because a delay rarely affects all of them.
const SAMPLES: u32 = 10;

const PRECISE: Opcode = libc::PTP_SYS_OFFSET_PRECISE as Opcode;
const EXTENDED: Opcode = libc::PTP_SYS_OFFSET_EXTENDED as Opcode;
const PLAIN: Opcode = libc::PTP_SYS_OFFSET as Opcode;

/// A reading of a NIC's clock between two readings of the wall clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock before the NIC's clock was read.
    pub before: i64,
    /// The NIC's clock.
    pub nic: i64,
    /// The wall clock after the NIC's clock was read.
    pub after: i64,
}

impl Reading {
    /// Returns the duration of the reading by the wall clock. If a clock is set meanwhile, the next reading detects it.
    #[must_use]
    pub const fn bracket(&self) -> i64 {
        self.after.wrapping_sub(self.before)
    }

    /// Returns the reading with the shortest duration.
    fn tightest(readings: impl Iterator<Item = Self>) -> io::Result<Self> {
        let possible = readings.filter(|reading| reading.bracket() >= 0);
        possible.min_by_key(Self::bracket).ok_or_else(|| io::Error::other("the wall clock was set meanwhile"))
    }
}

/// An open NIC clock.
pub struct Clock(File);

impl From<OwnedFd> for Clock {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }
}

impl From<Clock> for OwnedFd {
    fn from(clock: Clock) -> Self {
        clock.0.into()
    }
}

impl Clock {
    /// Returns the device path of the clock with this number.
    #[must_use]
    pub fn path(number: u32) -> PathBuf {
        PathBuf::from(format!("/dev/ptp{number}"))
    }

    /// Opens the clock with this number.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(number: u32) -> io::Result<Self> {
        // Read-only: the clock is never set.
        OpenOptions::new().read(true).open(Self::path(number)).map(Self)
    }

    /// Reads the clock with the most precise request that the driver supports: `PTP_SYS_OFFSET_PRECISE` (both clocks at
    /// once, in hardware), `PTP_SYS_OFFSET_EXTENDED` (timed by the driver) or `PTP_SYS_OFFSET`.
    ///
    /// # Errors
    /// If the driver fails to read the clock.
    pub fn read(&self) -> io::Result<Reading> {
        let other_way = |error| matches!(error, Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL);
        match self.precise() {
            Err(error) if other_way(error) => {}
            outcome => return Ok(outcome?),
        }
        match self.extended() {
            Err(error) if other_way(error) => {}
            outcome => return Reading::tightest(outcome?.into_iter()),
        }
        Reading::tightest(self.plain()?.into_iter())
    }

    /// Sends a request that fills `value`.
    ///
    /// # Safety
    /// `REQUEST` must take a pointer to a `T` and write only within it.
    unsafe fn fill<const REQUEST: Opcode, T>(&self, value: &mut T) -> Result<(), Errno> {
        // SAFETY: the caller guarantees that `REQUEST` takes a pointer to a `T`.
        let request = unsafe { Updater::<REQUEST, _>::new(value) };
        // SAFETY: the caller guarantees that `REQUEST` writes only within `value`, which outlives the call.
        unsafe { ioctl(self.0.as_fd(), request) }
    }

    fn precise(&self) -> Result<Reading, Errno> {
        // SAFETY: the struct contains only integers, for which zero bytes are valid.
        let mut offset: ptp_sys_offset_precise = unsafe { std::mem::zeroed() };
        // SAFETY: `PTP_SYS_OFFSET_PRECISE` takes a pointer to this type and writes only within it.
        unsafe { self.fill::<PRECISE, _>(&mut offset) }?;
        let wall = nanoseconds(&offset.sys_realtime);
        Ok(Reading { before: wall, nic: nanoseconds(&offset.device), after: wall })
    }

    fn extended(&self) -> Result<Vec<Reading>, Errno> {
        // SAFETY: the struct contains only integers, for which zero bytes are valid; clock id zero is `CLOCK_REALTIME`.
        let mut offset: ptp_sys_offset_extended = unsafe { std::mem::zeroed() };
        offset.n_samples = SAMPLES;
        // SAFETY: the request takes a pointer to this type, and its arrays hold more samples than requested.
        unsafe { self.fill::<EXTENDED, _>(&mut offset) }?;
        let samples = offset.ts.iter().take(SAMPLES as usize);
        let reading = |[before, nic, after]: &[ptp_clock_time; 3]| Reading {
            before: nanoseconds(before),
            nic: nanoseconds(nic),
            after: nanoseconds(after),
        };
        Ok(samples.map(reading).collect())
    }

    /// Reads the wall clock and the NIC's clock in turns; the wall clock is first and last.
    fn plain(&self) -> Result<Vec<Reading>, Errno> {
        // SAFETY: the struct contains only integers, for which zero bytes are valid.
        let mut offset: ptp_sys_offset = unsafe { std::mem::zeroed() };
        offset.n_samples = SAMPLES;
        // SAFETY: the request takes a pointer to this type, and its arrays hold more samples than requested.
        unsafe { self.fill::<PLAIN, _>(&mut offset) }?;
        let times: Vec<i64> = offset.ts.iter().take(2 * SAMPLES as usize + 1).map(nanoseconds).collect();
        let by_turns = times.windows(3).step_by(2);
        Ok(by_turns.map(|three| Reading { before: three[0], nic: three[1], after: three[2] }).collect())
    }
}

const fn nanoseconds(time: &ptp_clock_time) -> i64 {
    time.sec.wrapping_mul(NANOSECONDS).wrapping_add(time.nsec as i64)
}
