//! Handlers, one file per signal. Hooks call them; the verifier removes the handlers of disabled signals.

pub mod energy;
pub mod extra_latency;
pub mod forwarded;
mod group_latency;
pub mod latency;
pub mod network_cpu;
pub mod network_drops;
pub mod network_functions;
pub mod packet_path;
pub mod processor;
pub mod reader_states;
pub mod receive_driver;
pub mod receive_segments;
pub mod receive_wait;
mod slow_cells;
pub mod slow_packets;
pub mod socket_calls;
pub mod softirq_wait;
pub mod tcp_listen_overflows;
mod tcp_peers;
pub mod tcp_retransmits;
pub mod tcp_rtt;
pub mod tcp_transactions;
mod timings;
pub mod transmit;
pub mod waiting_packets;
pub mod workload_cpu;
mod workload_latency;

/// Declares a signal's switch. The loader sets it by the signal's name.
macro_rules! switch {
    ($name:literal) => {
        crate::kernel::constant::constants! {
            ENABLED = concat!("signal.", $name);
        }

        /// Returns true if the signal is enabled, a constant to the verifier.
        #[inline(always)]
        pub fn enabled() -> bool {
            ENABLED.get() != 0
        }
    };
}
use switch;
