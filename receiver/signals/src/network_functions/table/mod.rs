//! The kernel functions that identify events and parts of the network stack, with their names in Linux 5.10 to 7.3.
//!
//! A name that a kernel lacks is skipped: the function is inlined, has another name, or is in a module that is not loaded.

mod events;
mod receive;
mod transmit;
mod versions;

pub use self::{
    events::EVENTS,
    versions::{IPV4, IPV6},
};

/// An event, with the functions that it consists of.
pub struct Event {
    /// The value of `undercurrent.network.event`.
    pub name: &'static str,
    /// What it works for.
    pub owner: Owner,
    /// The functions.
    pub functions: &'static [&'static str],
}

/// The workload that an event works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The receiver of the packets, in a softirq.
    Receiver,
    /// The task that runs.
    Task,
    /// The node.
    Node,
    /// The node, in a softirq.
    NodeSoftirq,
}

/// A class of functions.
pub struct Class {
    /// The value of `undercurrent.network.function`.
    pub name: &'static str,
    /// The functions.
    pub functions: &'static [&'static str],
    /// The callers, direct or indirect, that the functions need to belong to the class. Empty if every caller will do. Functions of
    /// several classes belong to the class of their innermost caller here.
    pub callers: &'static [&'static str],
}

/// The class of a sample without a function of another class.
pub const OTHER: &str = "other";

/// Returns every class except [`OTHER`]. The innermost function of a stack counts.
pub fn classes() -> impl Iterator<Item = &'static Class> {
    receive::CLASSES.iter().chain(&transmit::CLASSES)
}

/// Functions that begin the processing of a received packet, and call the hooks of tc and netfilter on ingress.
const RECEIVE: &[&str] = &["__netif_receive_skb_core"];
/// Functions that pass a packet to a device, and call the hooks of tc and netfilter on egress.
const TRANSMIT: &[&str] = &["__dev_queue_xmit", "dev_queue_xmit"];
/// The functions that run the rules of any netfilter hook. The hook depends on the caller.
const NETFILTER: &[&str] = &["nf_hook_slow", "nf_hook_slow_list", "nft_do_chain"];
/// The functions that run the classifiers of tc.
const CLASSIFY: &[&str] = &["tc_run", "tcf_classify", "tcf_classify_ingress"];

/// Functions that belong to no class although a function of a class calls them: the packet leaves GRO or the driver.
pub const UNCLASSIFIED: &[&str] = &[
    "__netif_receive_skb",
    "__netif_receive_skb_core",
    "__netif_receive_skb_list_core",
    "__netif_receive_skb_one_core",
    "netif_receive_skb",
    "netif_receive_skb_internal",
    "netif_receive_skb_list_internal",
];

/// Functions that interrupt other work: their callers have no part in it. A stack that reaches one of them before an event is no network
/// work, for example a timer of the scheduler during a send.
pub const INTERRUPTS: &[&str] = &[
    "__do_softirq",
    "__irq_exit_rcu",
    "asm_common_interrupt",
    "asm_sysvec_apic_timer_interrupt",
    "asm_sysvec_call_function",
    "asm_sysvec_call_function_single",
    "asm_sysvec_hyperv_callback",
    "asm_sysvec_hyperv_stimer0",
    "asm_sysvec_irq_work",
    "asm_sysvec_reschedule_ipi",
    "asm_sysvec_xen_hvm_callback",
    "el1_interrupt",
    "handle_softirqs",
    "irq_exit_rcu",
];

const fn class(name: &'static str, functions: &'static [&'static str]) -> Class {
    within(name, functions, &[])
}

const fn within(name: &'static str, functions: &'static [&'static str], callers: &'static [&'static str]) -> Class {
    Class { name, functions, callers }
}
