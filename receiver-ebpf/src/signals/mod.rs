//! Handlers, one file a signal. A hook calls those that listen to it; a frozen flag for each drops what is off.

pub mod extra_latency;
mod group_latency;
pub mod latency;
pub mod network_cpu;
pub mod network_drops;
pub mod receive_driver;
pub mod receive_wait;
pub mod softirq_wait;
pub mod tcp_retransmits;
pub mod tcp_rtt;
mod timings;
pub mod transmit;
mod workload_latency;

/// Declares a signal's switch, which the loader sets by the signal's name.
macro_rules! switch {
    ($name:literal) => {
        #[unsafe(export_name = concat!("signal.", $name))]
        #[unsafe(link_section = ".rodata.flags")]
        static ENABLED: u32 = 0;

        /// Whether the signal is on.
        #[inline(always)]
        fn enabled() -> bool {
            crate::kernel::set_outside(&ENABLED) != 0
        }
    };
}
use switch;
