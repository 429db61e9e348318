//! The distance between the clock that programs read and the wall clock that stamps packets.

use std::{io, os::fd::AsFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::{
    client::{Client, ServiceError},
    service::Variable,
};

const NANOSECONDS: i128 = 1_000_000_000;
/// Enough to narrow the distance down to some nanoseconds, in some tens of microseconds.
const READINGS: usize = 256;

/// What to add to the monotonic clock to get the wall clock, in nanoseconds modulo 2^64.
///
/// Both run at the same rate (`struct timekeeper` keeps their distance as one number), so every reading of the one
/// between two of the other bounds the same number, and the bounds of many readings meet.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "programs add it modulo 2^64")]
pub fn offset() -> u64 {
    let bounds = (0..READINGS).map(|_| {
        let before = now(ClockId::Monotonic);
        let wall = now(ClockId::Realtime);
        let after = now(ClockId::Monotonic);
        (wall - after, wall - before)
    });
    let (least, most) = bounds.fold((i128::MIN, i128::MAX), |(least, most), (low, high)| {
        // The clock was set in between: only what came after counts.
        if low > most || high < least { (low, high) } else { (least.max(low), most.min(high)) }
    });
    ((least + most) / 2) as u64
}

fn now(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * NANOSECONDS + i128::from(time.tv_nsec)
}

/// Keeps the programs' offset right while the wall clock is set.
pub struct WallClock {
    client: Client,
    steps: AsyncFd<std::os::fd::OwnedFd>,
}

impl WallClock {
    /// Follows the wall clock for the programs. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel's refusal of a timer.
    pub fn follow(client: Client) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        arm(&timer)?;
        // SAFETY: an `OwnedFd` names the same open descriptor for as long as it lives.
        let steps = unsafe { AsyncFd::register(timer) }?;
        Ok(Self { client, steps })
    }

    /// Sets the programs' offset from the clocks as they are now.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn synchronize(&mut self) -> Result<(), ServiceError> {
        self.client.set(Variable::ClockOffset, offset())
    }

    /// Waits until the wall clock was set.
    ///
    /// # Errors
    /// The runtime's loss of the timer.
    pub async fn stepped(&mut self) -> io::Result<()> {
        let mut ready = self.steps.readable().await?;
        ready.clear_ready();
        drop(ready);
        // Setting a cancelled timer reports the cancellation first, and sets nothing.
        arm(self.steps.get_ref()).or_else(|error| match error.raw_os_error() {
            Some(libc::ECANCELED) => arm(self.steps.get_ref()),
            _ => Err(error),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_leads_from_one_clock_to_the_other() {
        let offset = offset();
        let monotonic = u64::try_from(now(ClockId::Monotonic)).expect("since boot");
        let wall = u64::try_from(now(ClockId::Realtime)).expect("after 1970");
        // Between the two readings the clocks go on, whatever else the machine does.
        assert!(wall.wrapping_sub(monotonic.wrapping_add(offset)) < NANOSECONDS as u64);
    }
}
