//! The distance between the clock that programs read and the wall clock that stamps packets.

use std::{io, os::fd::AsFd};

use aya::{
    maps::{Array, MapData, MapError},
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use serde::Serialize;
use tokio::io::unix::AsyncFd;

const NANOSECONDS: i128 = 1_000_000_000;

/// The clock that programs compare with a packet's stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BaseClock {
    /// International atomic time: steps with the wall clock, so that only leap seconds move it apart.
    Tai,
    /// The monotonic clock, for kernels before 6.1: every step of the wall clock must be followed.
    Monotonic,
}

impl BaseClock {
    /// The best clock that programs may read on this kernel.
    #[must_use]
    pub fn probe() -> Self {
        // Any type serves whose base helpers are open to it; tracing programs cannot be probed without a target.
        match is_helper_supported(ProgramType::Xdp, BpfHelper::BPF_FUNC_ktime_get_tai_ns) {
            Ok(true) => Self::Tai,
            _ => Self::Monotonic,
        }
    }

    /// What to add to this clock to get the wall clock, in nanoseconds modulo 2^64.
    #[must_use]
    pub fn offset(self) -> u64 {
        match self {
            // Whole seconds by definition, so the time between the two readings does not matter.
            Self::Tai => {
                let apart = now(ClockId::Realtime) - tai();
                let seconds = (apart + apart.signum() * NANOSECONDS / 2) / NANOSECONDS;
                modulo(seconds * NANOSECONDS)
            }
            Self::Monotonic => modulo(closest_distance()),
        }
    }
}

/// The wall clock minus the monotonic clock, from the tightest of some readings of the one between two of the other.
fn closest_distance() -> i128 {
    let readings = (0..32).map(|_| {
        let before = now(ClockId::Monotonic);
        let wall = now(ClockId::Realtime);
        let after = now(ClockId::Monotonic);
        (after - before, wall - (before + after) / 2)
    });
    readings.min_by_key(|(spread, _)| *spread).map_or(0, |(_, distance)| distance)
}

/// Nanoseconds of TAI. rustix has no name for its clock.
fn tai() -> i128 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, which lives through it; every kernel since 3.10 has the clock.
    unsafe { libc::clock_gettime(libc::CLOCK_TAI, &raw mut time) };
    i128::from(time.tv_sec) * NANOSECONDS + i128::from(time.tv_nsec)
}

fn now(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * NANOSECONDS + i128::from(time.tv_nsec)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "programs add it modulo 2^64")]
fn modulo(nanoseconds: i128) -> u64 {
    nanoseconds as u64
}

/// Keeps the programs' offset right while the wall clock is set.
pub struct WallClock {
    base: BaseClock,
    offset: Array<MapData, u64>,
    steps: AsyncFd<std::os::fd::OwnedFd>,
}

impl WallClock {
    /// Takes charge of the map that holds the offset. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel's refusal of a timer.
    pub fn follow(base: BaseClock, offset: Array<MapData, u64>) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        arm(&timer)?;
        // SAFETY: an `OwnedFd` names the same open descriptor for as long as it lives.
        let steps = unsafe { AsyncFd::register(timer) }?;
        Ok(Self { base, offset, steps })
    }

    /// Sets the programs' offset from the clocks as they are now.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn synchronize(&mut self) -> Result<(), MapError> {
        self.offset.set(0, self.base.offset(), 0)
    }

    /// Waits until the wall clock was set.
    ///
    /// # Errors
    /// The runtime's loss of the timer.
    pub async fn stepped(&mut self) -> io::Result<()> {
        let mut ready = self.steps.readable().await?;
        ready.clear_ready();
        drop(ready);
        arm(self.steps.get_ref())
    }
}

/// Sets a timer that never fires but is cancelled, and so readable, when the clock is set (`timerfd_create(2)`).
fn arm(timer: impl AsFd) -> io::Result<()> {
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::from(i32::MAX) * 4, tv_nsec: 0 },
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &never)?;
    Ok(())
}
