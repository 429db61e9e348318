//! The one door for developers: `cargo xtask help`.

fn main() {}
