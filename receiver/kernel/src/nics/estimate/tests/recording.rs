//! Generation and parsing of the recording in `fixtures/nic-clock.txt`.

use std::{f64::consts::TAU, fmt::Write as _, fs, path::Path};

use super::super::Reading;

/// Readings, one a second.
pub const SECONDS: usize = 120;
/// The rate of the wall clock relative to the NIC's clock, minus one. It varies by 0.2 ppm.
pub const RATE: f64 = -12.4e-6;
/// The seconds at which the wall clock and the NIC's clock are set.
pub const STEPS: [usize; 2] = [60, 90];

const FIXTURE: &str = include_str!("../../../../../fixtures/nic-clock.txt");
const PATH: &str = "../fixtures/nic-clock.txt";
const HEAD: &str = "\
# Readings of a NIC's clock, one per second, in nanoseconds: the wall clock before, the NIC's clock, the wall clock after.
# They imitate the best samples of PTP_SYS_OFFSET_EXTENDED. The ignored test write_recording of
# src/kernel/nics/estimate/ generates them. The fourth column is the true wall clock at the reading of the NIC's clock.
# The NIC's clock is TAI (37 s ahead) and 12.4 ppm fast; the rate varies by 0.2 ppm with a period of two minutes. Most
# readings take about a microsecond; every 17th takes 100 to 200 microseconds. The wall clock is set 0.25 s forward
# before second 60, the NIC's clock 1.2 ms back before second 90.
";

/// Returns the readings, each with the wall clock at the time of the NIC's reading.
pub fn read() -> Vec<(Reading, i64)> {
    let lines = FIXTURE.lines().filter(|line| !line.starts_with('#'));
    let numbers = |line: &str| {
        let numbers: Vec<i64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        <[i64; 4]>::try_from(numbers).expect("four numbers")
    };
    let readings = lines.map(numbers).map(|[before, nic, after, wall]| (Reading { before, nic, after }, wall));
    let readings: Vec<_> = readings.collect();
    assert_eq!(readings.len(), SECONDS);
    readings
}

/// A deterministic pseudorandom generator of numbers below one (Lehmer's generator with the `MINSTD` constants).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0 * 48_271 % 2_147_483_647;
        self.0 as f64 / 2_147_483_647.0
    }
}

fn record() -> String {
    let (mut chance, mut text) = (Chance(20_240_229), HEAD.to_owned());
    let (mut time, start) = (0, 1_767_225_600_000_000_000_i64);
    for second in 0..SECONDS {
        // The timer is late by up to a millisecond.
        let at = second as i64 * 1_000_000_000 + (chance.next() * 1e6) as i64;
        time = at.max(time);
        let turn = TAU * time as f64 / 120e9;
        let drift = -RATE * time as f64 + 0.2e-6 * 120e9 / TAU * (1.0 - turn.cos());
        let set = [250_000_000, -1_200_000];
        let [ahead, back] = [0, 1].map(|step| if second >= STEPS[step] { set[step] } else { 0 });
        let bracket = if second % 17 == 16 { 100e3 * (1.0 + chance.next()) } else { 700.0 * (1.0 + chance.next()) };
        let (wall, nic) = (start + time + ahead, start + 37_000_000_000 + time + drift.round() as i64 + back);
        let before = wall - (bracket * chance.next()) as i64;
        writeln!(text, "{before} {nic} {} {wall}", before + bracket as i64).expect("memory");
    }
    text
}

#[test]
fn fixture_matches_the_generator() {
    assert_eq!(FIXTURE, record(), "run the ignored test write_recording");
}

#[test]
#[ignore = "writes fixtures/nic-clock.txt"]
fn write_recording() {
    fs::write(Path::new(env!("UNDERCURRENT_WORKSPACE")).join("receiver/kernel").join(PATH), record()).expect("written");
}
