//! Shared parts of the integration tests.

use std::{env, fs::OpenOptions, io::Write as _};

/// Reports that the running test cannot run on this machine; the test then returns. The test harness has no
/// skipped state and would count the test as passed. So the reason is appended to the file in
/// `UNDERCURRENT_SKIPS`, which `cargo xtask test` evaluates.
pub fn skip(reason: &str) {
    let reason = reason.replace('\n', " ");
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = env::var_os("UNDERCURRENT_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("the file of skips opens");
        writeln!(file, "SKIPPED: {reason}").expect("the file of skips takes a line");
    }
}
