//! Reading a NIC's clock beside the wall clock, as `phc2sys` does.

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
/// Readings of which the tightest counts: whatever delays one is unlikely to delay them all.
const SAMPLES: u32 = 10;

const PRECISE: Opcode = libc::PTP_SYS_OFFSET_PRECISE as Opcode;
const EXTENDED: Opcode = libc::PTP_SYS_OFFSET_EXTENDED as Opcode;
const PLAIN: Opcode = libc::PTP_SYS_OFFSET as Opcode;

/// A reading of a NIC's clock between two of the wall clock, nanoseconds of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock before.
    pub before: i64,
    /// The NIC's clock.
    pub nic: i64,
    /// The wall clock after.
    pub after: i64,
}

impl Reading {
    /// How long it took by the wall clock; no clock can be set in between without being found out by the next reading.
    #[must_use]
    pub const fn bracket(&self) -> i64 {
        self.after.wrapping_sub(self.before)
    }

    /// The one that took least.
    fn tightest(readings: impl Iterator<Item = Self>) -> io::Result<Self> {
        let possible = readings.filter(|reading| reading.bracket() >= 0);
        possible.min_by_key(Self::bracket).ok_or_else(|| io::Error::other("the wall clock was set meanwhile"))
    }
}

/// A NIC's clock, open.
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
    /// Where the clock of a number is.
    #[must_use]
    pub fn path(number: u32) -> PathBuf {
        PathBuf::from(format!("/dev/ptp{number}"))
    }

    /// Opens it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn open(number: u32) -> io::Result<Self> {
        // For reading: nothing is set.
        OpenOptions::new().read(true).open(Self::path(number)).map(Self)
    }

    /// Reads it by the best way that its driver has: both clocks at once by the hardware, or one after the other as closely
    /// as the driver can, or as any driver can.
    ///
    /// # Errors
    /// The driver's.
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

    /// Has the driver fill a value.
    ///
    /// # Safety
    /// The request takes a pointer to such a value, and nothing beyond it is written.
    unsafe fn fill<const REQUEST: Opcode, T>(&self, value: &mut T) -> Result<(), Errno> {
        // SAFETY: by the caller.
        let request = unsafe { Updater::<REQUEST, _>::new(value) };
        // SAFETY: by the caller.
        unsafe { ioctl(self.0.as_fd(), request) }
    }

    fn precise(&self) -> Result<Reading, Errno> {
        // SAFETY: numbers all, of which zeros are values.
        let mut offset: ptp_sys_offset_precise = unsafe { std::mem::zeroed() };
        // SAFETY: the request is for this type.
        unsafe { self.fill::<PRECISE, _>(&mut offset) }?;
        let wall = nanoseconds(&offset.sys_realtime);
        Ok(Reading { before: wall, nic: nanoseconds(&offset.device), after: wall })
    }

    fn extended(&self) -> Result<Vec<Reading>, Errno> {
        // SAFETY: numbers all, of which zeros are values; zero is the wall clock's number too.
        let mut offset: ptp_sys_offset_extended = unsafe { std::mem::zeroed() };
        offset.n_samples = SAMPLES;
        // SAFETY: the request is for this type, which has room for more samples than are asked for.
        unsafe { self.fill::<EXTENDED, _>(&mut offset) }?;
        let samples = offset.ts.iter().take(SAMPLES as usize);
        let reading = |[before, nic, after]: &[ptp_clock_time; 3]| Reading {
            before: nanoseconds(before),
            nic: nanoseconds(nic),
            after: nanoseconds(after),
        };
        Ok(samples.map(reading).collect())
    }

    /// The wall clock and the NIC's by turns, the wall clock first and last.
    fn plain(&self) -> Result<Vec<Reading>, Errno> {
        // SAFETY: numbers all, of which zeros are values.
        let mut offset: ptp_sys_offset = unsafe { std::mem::zeroed() };
        offset.n_samples = SAMPLES;
        // SAFETY: the request is for this type, which has room for more samples than are asked for.
        unsafe { self.fill::<PLAIN, _>(&mut offset) }?;
        let times: Vec<i64> = offset.ts.iter().take(2 * SAMPLES as usize + 1).map(nanoseconds).collect();
        let by_turns = times.windows(3).step_by(2);
        Ok(by_turns.map(|three| Reading { before: three[0], nic: three[1], after: three[2] }).collect())
    }
}

const fn nanoseconds(time: &ptp_clock_time) -> i64 {
    time.sec.wrapping_mul(NANOSECONDS).wrapping_add(time.nsec as i64)
}
