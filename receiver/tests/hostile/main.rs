//! Attacks of local users, containers, runtimes and collectors on the built sidecar. Each attack must fail. The
//! tests need root.
#![expect(clippy::unwrap_used, reason = "a test that panics says where it failed")]

mod collectors;
mod delays;
mod execution;
mod floods;
mod frozen;
mod garbage;
mod identity;
mod outputs;
mod protocol;
mod readers;
mod reload;
mod separation;
mod slow;
mod sockets;
mod storm;
mod support;
mod text;
mod watchdog;
