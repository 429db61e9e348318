//! Committed files that are generated from the code.

use std::{fs, path::Path};

/// Compares a committed file with its generated content. `UPDATE_DOCS=1`, which `cargo xtask docs` sets, writes
/// the file.
pub fn assert_committed(path: &str, expected: &str) {
    let file = Path::new(env!("UNDERCURRENT_WORKSPACE")).join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(file.parent().expect("a folder")).expect("created");
        fs::write(&file, expected).expect("written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == expected, "{path} is out of date: run `cargo xtask docs`");
}
