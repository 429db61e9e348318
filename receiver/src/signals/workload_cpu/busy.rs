//! CPU time that the whole node used.

use std::{
    collections::BTreeMap,
    fs, io,
    time::{Duration, Instant},
};

/// Where the kernel says how long each CPU was idle.
pub const SOURCE: &str = "/proc/stat";

/// CPU time that was neither idle nor stolen by a hypervisor, over all CPUs.
///
/// The kernel's own sums of busy time (`user`, `system` and so on, and from them `cpu.stat` of the root cgroup) are counted
/// by timer ticks on most kernels, and miss much of what runs between two: half, on an idle host. Idle time is measured
/// where ticks stop on idle CPUs (`NO_HZ`), as they do on every distribution's kernel. So what is not idle is as exact as
/// the time of cgroups.
#[derive(Debug, Default)]
pub struct Busy {
    cpus: BTreeMap<u32, Cpu>,
    /// Time of CPUs that went offline.
    offline: Duration,
}

#[derive(Debug)]
struct Cpu {
    since: Instant,
    /// What it had been idle before.
    from: Duration,
    idle: Duration,
    busy: Duration,
}

impl Busy {
    /// Goes on to now.
    ///
    /// # Errors
    /// Where the kernel's file cannot be read.
    pub fn read(&mut self) -> io::Result<()> {
        let idle = parse(&fs::read_to_string(SOURCE)?, procfs::ticks_per_second());
        self.advance(Instant::now(), idle);
        Ok(())
    }

    /// CPU time since the first reading: a sum that grows. A CPU counts from the first reading that it is in.
    pub fn total(&self) -> Duration {
        self.offline + self.cpus.values().map(|cpu| cpu.busy).sum::<Duration>()
    }

    /// Goes on to a time at which each CPU that is online has been idle so long.
    fn advance(&mut self, now: Instant, idle: BTreeMap<u32, Duration>) {
        // Idle time that falls is another count: some kernels begin anew when a CPU comes back.
        let goes_on = |number: &u32, cpu: &Cpu| idle.get(number).is_some_and(|idle| *idle >= cpu.idle);
        let gone = self.cpus.extract_if(.., |number, cpu| !goes_on(number, cpu));
        self.offline += gone.map(|(_, cpu)| cpu.busy).sum::<Duration>();
        for (number, idle) in idle {
            let cpu = self.cpus.entry(number).or_insert(Cpu { since: now, from: idle, idle, busy: Duration::ZERO });
            cpu.idle = idle;
            // Idle time comes in whole ticks, so now and then it is ahead of the clock.
            cpu.busy = cpu.busy.max(now.saturating_duration_since(cpu.since).saturating_sub(idle - cpu.from));
        }
    }
}

/// Idle, waiting and stolen time by CPU: of `cpu0 user nice system idle iowait irq softirq steal ...`, in ticks.
fn parse(stat: &str, ticks_per_second: u64) -> BTreeMap<u32, Duration> {
    let cpu = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let number = words.next()?.parse().ok()?;
        let columns: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let ticks: u64 = [3, 4, 7].iter().filter_map(|column| columns.get(*column)).sum();
        Some((number, Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_second))))
    };
    stat.lines().filter_map(cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn idle(cpus: &[(u32, u32)]) -> BTreeMap<u32, Duration> {
        cpus.iter().map(|(cpu, hundredths)| (*cpu, SECOND * *hundredths / 100)).collect()
    }

    #[test]
    fn the_file_is_understood() {
        let stat = "cpu  122657 0 26308 220398 1304 0 2541 94 0 0\ncpu0 1 2 3 400 50 6 7 8 0 0\ncpu12 1 2 3 100 0 0 0 0 0 0\n\
                    intr 5 5\nctxt 9\n";
        assert_eq!(parse(stat, 100), idle(&[(0, 458), (12, 100)]));
        assert!(!parse(&fs::read_to_string(SOURCE).unwrap(), procfs::ticks_per_second()).is_empty());
    }

    #[test]
    fn what_is_not_idle_is_busy() {
        let (mut busy, start) = (Busy::default(), Instant::now());
        busy.advance(start, idle(&[(0, 500), (1, 900)]));
        assert_eq!(busy.total(), Duration::ZERO);
        busy.advance(start + SECOND, idle(&[(0, 575), (1, 950)]));
        assert_eq!(busy.total(), SECOND * 3 / 4);
        // Ahead of the clock, and made good for.
        busy.advance(start + SECOND * 2, idle(&[(0, 676), (1, 1050)]));
        assert_eq!(busy.total(), SECOND * 3 / 4);
        busy.advance(start + SECOND * 3, idle(&[(0, 775), (1, 1150)]));
        assert_eq!(busy.total(), SECOND * 3 / 4);
    }

    #[test]
    fn cpus_come_and_go() {
        let (mut busy, start) = (Busy::default(), Instant::now());
        busy.advance(start, idle(&[(0, 0), (1, 700)]));
        busy.advance(start + SECOND, idle(&[(0, 0), (1, 750)]));
        assert_eq!(busy.total(), SECOND * 3 / 2);
        // One is offline, one is new, and one begins anew.
        busy.advance(start + SECOND * 2, idle(&[(1, 10), (2, 33)]));
        assert_eq!(busy.total(), SECOND * 3 / 2);
        busy.advance(start + SECOND * 3, idle(&[(1, 110), (2, 33)]));
        assert_eq!(busy.total(), SECOND * 5 / 2);
    }
}
