//! The `undercurrent` command.

fn main() {}
