//! Attacks of local users, containers, runtimes and collectors on the built sidecar, each of which fails. They need root.
#![expect(clippy::unwrap_used, reason = "a test that panics says where it failed")]

mod floods;
mod frozen;
mod identity;
mod outputs;
mod separation;
mod sockets;
mod support;
mod text;
mod watchdog;
