use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TICK: u64 = 10;

fn all(milliseconds: u64) -> Growth {
    Growth { time: Duration::from_millis(milliseconds), complete: true }
}

/// The growth on a host where the sidecar cannot read tasks.
const NONE: Growth = Growth { time: Duration::ZERO, complete: false };

/// Returns idle, stolen, task and interrupt time of one CPU, in ticks.
fn ticks([idle, steal, tasks, interrupts]: [u64; 4]) -> Times {
    let time = |ticks: u64| Duration::from_millis(ticks * TICK);
    Times { idle: time(idle), steal: time(steal), tasks: time(tasks), interrupts: time(interrupts) }
}

/// A node with fake readings.
struct Node {
    busy: Busy,
    now: Instant,
}

impl Node {
    fn new(cpus: &[(u32, [u64; 4])]) -> Self {
        let mut node = Self { busy: Busy::new(false), now: Instant::now() };
        node.read(SECOND, cpus, NONE);
        node
    }

    /// Adds a reading, and returns the total.
    fn read(&mut self, after: Duration, cpus: &[(u32, [u64; 4])], tasks: Growth) -> Duration {
        let before = self.busy.total();
        self.now += after;
        let times = cpus.iter().map(|(cpu, columns)| (*cpu, ticks(*columns))).collect();
        self.busy.advance(self.now, times, tasks);
        assert!(self.busy.total() >= before, "the total fell");
        self.busy.total()
    }
}

#[test]
fn time_that_is_not_idle_counts_as_used() {
    let mut node = Node::new(&[(0, [500, 0, 0, 0]), (1, [900, 0, 0, 0])]);
    assert_eq!(node.busy.total(), Duration::ZERO);
    // Ticks saw a third of the work.
    assert_eq!(node.read(SECOND, &[(0, [575, 0, 9, 0]), (1, [950, 0, 16, 0])], NONE), SECOND * 3 / 4);
    // Idle time is ahead of the clock by a tick. The next interval compensates for it.
    assert_eq!(node.read(SECOND, &[(0, [676, 0, 9, 0]), (1, [1050, 0, 16, 0])], NONE), SECOND * 3 / 4);
    assert_eq!(node.read(SECOND, &[(0, [775, 0, 9, 0]), (1, [1150, 0, 16, 0])], NONE), SECOND * 3 / 4);
}

#[test]
fn interrupts_on_idle_cpus_add_to_tasks() {
    let mut node = Node::new(&[(0, [0; 4])]);
    // 200 ms of softirqs ran on the idle CPU, 300 ms of tasks.
    assert_eq!(node.read(SECOND, &[(0, [50, 0, 30, 20])], all(300)), SECOND / 2);
}

#[test]
fn time_that_is_idle_and_stolen_is_subtracted_once() {
    // 28 s on two CPUs, measured: the stolen time, elapsed minus idle minus stolen time, `cpuacct.usage` of the root cgroup, and
    // user, system and softirq time, in ticks.
    for (steal, bound, truth, columns) in [(1035, 146, 931, 886), (146, 798, 855, 822), (29, 836, 824, 808)] {
        let idle = 5600 - steal - bound;
        for intervals in [1, 7, 28] {
            let mut node = Node::new(&[(0, [0; 4]), (1, [0; 4])]);
            let mut exact = 0;
            let mut by_ticks = Node::new(&[(0, [0; 4]), (1, [0; 4])]);
            for nth in 1..=intervals {
                let part = |ticks: u64| ticks * nth / intervals / 2;
                let cpus = [0, 1].map(|cpu| (cpu, [part(idle), part(steal), part(columns), 0]));
                let (ran, after) = (truth * TICK * nth / intervals, SECOND * 28 / u32::try_from(intervals).unwrap());
                node.read(after, &cpus, all(ran - exact));
                by_ticks.read(after, &cpus, NONE);
                exact = ran;
            }
            let error = |node: &Node| node.busy.total().as_secs_f64() / (truth as f64 / 100.0) - 1.0;
            let case = format!("{steal} ticks stolen, {intervals} intervals");
            assert!(error(&node).abs() < 0.02, "{case}: {:.3} with the run time of tasks", error(&node));
            assert!(error(&by_ticks).abs() < 0.1, "{case}: {:.3} by ticks", error(&by_ticks));
            let stolen = node.busy.steal().as_secs_f64();
            assert!((stolen - steal as f64 / 100.0).abs() < 0.03, "{case}: {stolen} s");
        }
    }
}

#[test]
fn an_hour_without_stolen_time_does_not_delay_later_growth() {
    let mut node = Node::new(&[(0, [0; 4])]);
    // Interrupts on the idle CPU let the total run ahead of the tasks by 10 minutes.
    let hour = node.read(SECOND * 3600, &[(0, [180_000, 0, 120_000, 60_000])], all(1_200_000));
    assert_eq!(hour, SECOND * 1800);
    // From then on, most stolen time is idle time too.
    let mut total = hour;
    for second in 1..=10 {
        let cpu = [180_000 + second * 70, second * 30, 120_000 + second * 25, 60_000];
        total = node.read(SECOND, &[(0, cpu)], all(280));
    }
    let grown = (total - hour).as_secs_f64();
    assert!((2.77..=2.82).contains(&grown), "{grown} s of 2.8 s");
}

#[test]
fn no_lower_bound_exceeds_the_time_that_was_not_idle() {
    let mut node = Node::new(&[(0, [0; 4])]);
    // Ticks cannot say more than elapsed minus idle time.
    assert_eq!(node.read(SECOND, &[(0, [60, 20, 45, 5])], NONE), SECOND * 2 / 5);
    // An exact run time can, on a kernel that measures idle time by ticks.
    let more = node.read(SECOND, &[(0, [150, 20, 45, 5])], all(300)) - SECOND * 2 / 5;
    assert!(more + RESOLUTION >= Duration::from_millis(300), "{more:?}");
}

#[test]
fn interrupts_add_to_tasks_if_the_kernel_accounts_them_separately() {
    let mut node = Node::new(&[(0, [0; 4])]);
    node.busy.separates_interrupts = true;
    // 300 ms of tasks, 200 ms of interrupts, and 250 ms that are idle and stolen.
    let total = node.read(SECOND, &[(0, [50, 25, 20, 20])], all(300));
    assert_eq!(total, SECOND / 2);
}

#[test]
fn cpus_come_and_go() {
    let mut node = Node::new(&[(0, [0; 4]), (1, [700, 0, 0, 0])]);
    assert_eq!(node.read(SECOND, &[(0, [0, 0, 100, 0]), (1, [750, 0, 50, 0])], NONE), SECOND * 3 / 2);
    // One is offline, one is new, and one begins anew.
    assert_eq!(node.read(SECOND, &[(1, [10, 0, 0, 0]), (2, [33, 0, 0, 0])], NONE), SECOND * 3 / 2);
    assert_eq!(node.read(SECOND, &[(1, [110, 0, 0, 0]), (2, [33, 0, 100, 0])], NONE), SECOND * 5 / 2);
}

#[test]
fn a_cpu_that_was_offline_between_two_readings_counts_as_idle() {
    let mut node = Node::new(&[(0, [0; 4]), (1, [0; 4])]);
    // CPU 1 was offline for 9 of 10 seconds. Newer kernels keep its idle time, which did not grow.
    let total = node.read(SECOND * 10, &[(0, [900, 0, 100, 0]), (1, [80, 0, 20, 0])], all(1200));
    assert!(total >= Duration::from_millis(1180) && total <= Duration::from_millis(1220), "{total:?}");
}

#[test]
fn a_different_count_of_stolen_time_is_no_growth_of_cpu_time() {
    let mut node = Node::new(&[(0, [0, 500, 0, 0])]);
    // Migration to a host that stole nothing yet, then one with a count far ahead.
    assert_eq!(node.read(SECOND, &[(0, [50, 0, 50, 0])], all(500)), SECOND / 2);
    assert_eq!(node.busy.steal(), Duration::ZERO);
    let total = node.read(SECOND, &[(0, [100, 1_000_000, 100, 0])], all(500));
    assert_eq!((total, node.busy.steal()), (SECOND, SECOND));
}

/// Readings on a virtual machine with two CPUs and Linux 6.18, half a minute each: idle, half busy and busy. A line `@` has the
/// time and `cpuacct.usage` of the root cgroup, both in nanoseconds. The following lines are from `/proc/stat`.
const RECORDED: &str = include_str!("recorded.txt");

#[test]
fn recorded_readings_agree_with_the_run_time_of_tasks() {
    for sequence in RECORDED.split("# ").skip(1) {
        let (name, readings) = sequence.split_once('\n').unwrap();
        // With the run time of tasks, and without.
        let (start, mut both) = (Instant::now(), [Busy::new(false), Busy::new(false)]);
        let (mut first, mut last) = (None, 0);
        for reading in readings.split("@ ").skip(1) {
            let (head, stat) = reading.split_once('\n').unwrap();
            let (time, usage) = head.split_once(' ').unwrap();
            let (time, usage): (u64, u64) = (time.parse().unwrap(), usage.parse().unwrap());
            let ran = Duration::from_nanos(usage - *first.get_or_insert(usage) - last);
            last = usage - first.unwrap();
            for (busy, tasks) in both.iter_mut().zip([Growth { time: ran, complete: true }, NONE]) {
                busy.advance(start + Duration::from_nanos(time), stat::parse(stat, 100), tasks);
            }
        }
        let truth = last as f64 / 1e9;
        for busy in both {
            // Idle time is in ticks of 10 ms. Interrupts on the idle CPUs took 0.14 s of a minute, and belong to no task.
            let (total, error) = (busy.total().as_secs_f64(), 0.02 * truth + 0.04);
            assert!((truth - error..=truth + error + 0.15).contains(&total), "{name}: {total} s, not {truth} s");
        }
    }
}
