//! What integration tests share.

use std::{env, fs::OpenOptions, io::Write as _};

/// Says that the running test cannot run here; the test then returns. The harness has no word for it and would count it
/// as passed, so the reason goes into the file that `UNDERCURRENT_SKIPS` names, where `cargo xtask test` counts it.
pub fn skip(reason: &str) {
    let reason = reason.replace('\n', " ");
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = env::var_os("UNDERCURRENT_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("the file of skips opens");
        writeln!(file, "SKIPPED: {reason}").expect("the file of skips takes a line");
    }
}
