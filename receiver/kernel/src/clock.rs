//! The offset between the monotonic clock, which programs read, and the wall clock of packet timestamps.

use std::{io, os::fd::AsFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::{
    client::{Client, ServiceError},
    messages::Variable,
};
use crate::namespaces;

const NANOSECONDS: i128 = 1_000_000_000;
/// The number of readings. They narrow the offset to some nanoseconds and take some tens of microseconds.
const READINGS: usize = 256;

/// Returns the wall clock minus the monotonic clock, in nanoseconds modulo 2^64.
///
/// `struct timekeeper` stores the offset as one number, so both clocks run at an equal rate. A reading of one clock
/// between two readings of the other bounds the offset; the result is the intersection of many bounds.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "programs add it modulo 2^64")]
pub fn offset() -> u64 {
    let bounds = (0..READINGS).map(|_| {
        let before = kernel_monotonic();
        let wall = now(ClockId::Realtime);
        let after = kernel_monotonic();
        (wall - after, wall - before)
    });
    let (least, most) = bounds.fold((i128::MIN, i128::MAX), |(least, most), (low, high)| {
        // The wall clock was set meanwhile: drop the earlier bounds.
        if low > most || high < least { (low, high) } else { (least.max(low), most.min(high)) }
    });
    ((least + most) / 2) as u64
}

fn now(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * NANOSECONDS + i128::from(time.tv_nsec)
}

/// Returns the monotonic clock that programs read: a time namespace shifts it for processes only.
fn kernel_monotonic() -> i128 {
    now(ClockId::Monotonic) - namespaces::monotonic_offset()
}

/// Updates the programs' clock offset whenever the wall clock is set.
pub struct WallClock {
    client: Client,
    steps: AsyncFd<std::os::fd::OwnedFd>,
}

impl WallClock {
    /// Follows the wall clock for the programs. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the kernel refuses a timer.
    pub fn follow(client: Client) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        arm(&timer)?;
        // SAFETY: the `OwnedFd` keeps the descriptor open as long as the `AsyncFd` owns it.
        let steps = unsafe { AsyncFd::register(timer) }?;
        Ok(Self { client, steps })
    }

    /// Measures the clock offset and writes it for the programs.
    ///
    /// # Errors
    /// If the kernel refuses to write the map.
    pub fn synchronize(&mut self) -> Result<(), ServiceError> {
        self.client.set(Variable::ClockOffset, offset())
    }

    /// Waits until the wall clock is set.
    ///
    /// # Errors
    /// If the runtime stops polling the timer.
    pub async fn stepped(&mut self) -> io::Result<()> {
        let mut ready = self.steps.readable().await?;
        ready.clear_ready();
        drop(ready);
        // The first `timerfd_settime` on a cancelled timer returns `ECANCELED` and does not arm the timer.
        arm(self.steps.get_ref()).or_else(|error| match error.raw_os_error() {
            Some(libc::ECANCELED) => arm(self.steps.get_ref()),
            _ => Err(error),
        })
    }
}

/// Arms a timer that never expires; the kernel cancels it, which makes it readable, when the wall clock is set
/// (`TFD_TIMER_CANCEL_ON_SET`, `timerfd_create(2)`).
fn arm(timer: impl AsFd) -> io::Result<()> {
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::from(i32::MAX) * 4, tv_nsec: 0 },
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &never)?;
    Ok(())
}

/// Returns the monotonic clock in nanoseconds, as programs read it.
#[must_use]
pub fn monotonic() -> u64 {
    u64::try_from(kernel_monotonic()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_converts_monotonic_to_wall_clock() {
        let offset = offset();
        let monotonic = monotonic();
        let wall = u64::try_from(now(ClockId::Realtime)).expect("after 1970");
        // The clocks advance between the two readings.
        assert!(wall.wrapping_sub(monotonic.wrapping_add(offset)) < NANOSECONDS as u64);
    }
}
