//! Comparisons of exported values with independent truths.

use std::{env, fs::OpenOptions, io::Write as _, ops::RangeInclusive, thread, time::SystemTime};

use super::{
    errors::{Measured, error},
    surroundings::virtual_machine,
    truths::{Allowed, Comparison, truths},
};

/// The variable with the file that measured errors are appended to.
const RESULTS: &str = "UNDERCURRENT_TRUTH";

/// Asserts that an exported value is within the allowed error of its true value, or of the bounds of the true value. The
/// list in `tests/truth/metrics.yaml` has the allowed error for the running test. Appends the error to the results file.
///
/// Call it in the thread of the test: libtest names the thread after the test.
pub fn record(metric: &str, value: f64, truth: RangeInclusive<f64>) {
    let test = thread::current().name().expect("the thread of a test").to_owned();
    let comparison = truths().remove(metric).into_iter().flatten().find(|comparison| comparison.test == test);
    let Comparison { truth: source, allowed, native, .. } =
        comparison.unwrap_or_else(|| panic!("tests/truth/metrics.yaml has no entry for {metric} by {test}"));
    let allowed = native.filter(|_| virtual_machine().is_none()).unwrap_or(allowed);
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string()[..10].to_owned();
    let measured = Measured { metric: metric.to_owned(), test, value, truth, kernel: release, date };
    eprintln!(
        "{metric}: {value}, {source}: {:?}, error {}, a share of {}",
        measured.truth,
        measured.error(),
        measured.relative()
    );
    if let Some(path) = env::var_os(RESULTS) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{}", measured.line()).unwrap();
    }
    assert!(is_allowed(allowed, value, &measured.truth), "{metric}: {value}, {source}: {:?}", measured.truth);
}

/// Returns the range of a single true value.
pub fn exactly(value: f64) -> RangeInclusive<f64> {
    value..=value
}

fn is_allowed(allowed: Allowed, value: f64, truth: &RangeInclusive<f64>) -> bool {
    let nearest = value.clamp(*truth.start(), *truth.end());
    error(value, truth).abs() <= allowed.relative.mul_add(nearest.abs(), allowed.absolute)
}

#[test]
fn errors_beyond_the_allowed_ones_are_refused() {
    let allowed = Allowed { relative: 0.1, absolute: 1.0 };
    for (value, truth, expected) in [
        (111.0, exactly(100.0), true),
        (111.1, exactly(100.0), false),
        (88.9, exactly(100.0), false),
        (88.9, 90.0..=100.0, true),
        (1.0, exactly(0.0), true),
        (f64::NAN, exactly(1.0), false),
    ] {
        assert_eq!(is_allowed(allowed, value, &truth), expected, "{value} of {truth:?}");
    }
    assert!(!is_allowed(Allowed::default(), 1.0, &exactly(2.0)));
}
