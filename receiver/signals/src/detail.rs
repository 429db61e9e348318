//! The hooks that depend on the measured layers.
//!
//! If the layer `socket_enqueued` is measured, its programs run for each packet anyway, and the wait begins in the receive queue. Else it
//! begins at the entry of the transport protocol, some microseconds earlier. One program for each packet and one for each read are then
//! enough.

use undercurrent_ebpf::abi::latency::Layer;

use super::Settings;
use crate::kernel::{
    constant::{Constant, Feature},
    hooks::{self, Hook},
};

/// Returns the hook at which the wait of a packet begins.
pub fn arrival_hook(settings: &Settings) -> &'static Hook {
    if needs_one_program(settings) { &hooks::SOCKET_ARRIVAL } else { &hooks::SOCKET_ENQUEUED }
}

/// Returns the hook at which a task reads a socket and becomes its owner.
pub fn reader_hook(settings: &Settings) -> &'static Hook {
    if needs_one_program(settings) { &hooks::DATAGRAM_READER } else { &hooks::SOCKET_READER }
}

/// Returns the constant that tells programs where waits begin.
pub fn arrival_constant(settings: &Settings) -> Constant {
    Constant::flag("wait.at_transport", needs_one_program(settings)).requires(Feature::SocketOfPacket)
}

fn needs_one_program(settings: &Settings) -> bool {
    !(settings.latency.enabled && settings.latency.layers().contains(Layer::SocketEnqueued))
}
