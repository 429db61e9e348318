//! Classification of stacks by event, function and IP version.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::latency::IpVersion;

use super::{
    settings::Settings,
    table::{EVENTS, INTERRUPTS, IPV4, IPV6, OTHER, UNCLASSIFIED, classes},
};
use crate::kernel::text::Text;

/// The network work that a stack belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// The index of the event in [`EVENTS`].
    pub event: usize,
    /// The index of the class; see [`Classifier::class`].
    pub class: usize,
    /// The IP version; `None` if no function of the stack depends on it.
    pub version: Option<IpVersion>,
}

/// The classification of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classified {
    /// The work; `None` if the stack is no network work.
    pub work: Option<Work>,
    /// The number of frames from the innermost one to the function of the event.
    pub frames: usize,
    /// True if a frame is in an unknown function outside of vmlinux.
    pub unresolved: bool,
}

/// The classes of [`OTHER`] and of each class in the table and the configuration, with the addresses of their functions.
pub struct Classifier {
    classes: Vec<String>,
    /// The roles of each function, in the order of [`functions`].
    roles: Vec<Roles>,
    text: Text,
}

/// The roles of a function.
#[derive(Clone, Debug, Default)]
struct Roles {
    event: Option<usize>,
    class: Option<usize>,
    /// The classes that depend on a caller.
    candidates: Vec<usize>,
    /// The candidates that this function decides as their caller.
    decides: Vec<usize>,
    version: Option<IpVersion>,
    interrupts: bool,
}

/// The index of [`OTHER`].
const OTHER_CLASS: usize = 0;

/// Returns the functions of events and classes, in a fixed order.
pub fn functions(settings: &Settings) -> Vec<String> {
    roles(settings).1.into_keys().collect()
}

/// Returns the names of all classes, and the roles of each function.
fn roles(settings: &Settings) -> (Vec<String>, BTreeMap<String, Roles>) {
    let mut names = vec![OTHER.to_owned()];
    let mut roles: BTreeMap<String, Roles> = BTreeMap::new();
    for (number, event) in EVENTS.iter().enumerate() {
        for function in event.functions {
            roles.entry((*function).to_owned()).or_default().event = Some(number);
        }
    }
    for class in classes() {
        let number = index(&mut names, class.name);
        for function in class.functions {
            let roles = roles.entry((*function).to_owned()).or_default();
            if class.callers.is_empty() {
                roles.class = Some(number);
            } else {
                roles.candidates.push(number);
            }
        }
        for caller in class.callers {
            roles.entry((*caller).to_owned()).or_default().decides.push(number);
        }
    }
    for function in UNCLASSIFIED {
        roles.entry((*function).to_owned()).or_default().class = Some(OTHER_CLASS);
    }
    for function in INTERRUPTS {
        roles.entry((*function).to_owned()).or_default().interrupts = true;
    }
    for (list, version) in [(IPV4, IpVersion::Ipv4), (IPV6, IpVersion::Ipv6)] {
        for function in list {
            roles.entry((*function).to_owned()).or_default().version = Some(version);
        }
    }
    for (class, functions) in settings.classes.iter() {
        let number = index(&mut names, class);
        for function in functions {
            let roles = roles.entry(function.to_owned()).or_default();
            roles.class = Some(number);
            roles.candidates.clear();
        }
    }
    (names, roles)
}

/// Returns the index of a class, and appends a new one.
fn index(names: &mut Vec<String>, class: &str) -> usize {
    names.iter().position(|name| name == class).unwrap_or_else(|| {
        names.push(class.to_owned());
        names.len() - 1
    })
}

impl Classifier {
    /// Returns a classifier for the addresses of [`functions`].
    pub fn new(settings: &Settings, text: Text) -> Self {
        let (classes, roles) = roles(settings);
        Self { classes, roles: roles.into_values().collect(), text }
    }

    /// Replaces the addresses of [`functions`].
    pub fn set_text(&mut self, text: Text) {
        self.text = text;
    }

    /// Returns the name of a class.
    pub fn class(&self, class: usize) -> &str {
        &self.classes[class]
    }

    /// Classifies a stack. `frames` are addresses, the innermost frame first.
    pub fn classify(&self, frames: impl Iterator<Item = u64>) -> Classified {
        let mut unresolved = false;
        let (mut class, mut candidates, mut version) = (None, &[][..], None);
        for (depth, address) in frames.enumerate() {
            // The address of a caller is that of its next instruction, which can be the first one of another function.
            let address = if depth == 0 { address } else { address.wrapping_sub(1) };
            let Some(function) = self.text.function(address) else {
                unresolved |= self.text.is_outside_vmlinux(address);
                continue;
            };
            let Some(roles) = self.roles.get(function as usize) else { continue };
            if roles.interrupts {
                break;
            }
            version = version.or(roles.version);
            if class.is_none() {
                if candidates.is_empty() {
                    class = roles.class.filter(|_| roles.candidates.is_empty());
                    candidates = &roles.candidates;
                } else {
                    class = candidates.iter().copied().find(|candidate| roles.decides.contains(candidate));
                }
            }
            if let Some(event) = roles.event {
                let work = Work { event, class: class.unwrap_or(OTHER_CLASS), version };
                return Classified { work: Some(work), frames: depth + 1, unresolved };
            }
        }
        Classified { work: None, frames: 0, unresolved }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::text::Range;

    /// Returns a classifier with every function of the table at 16 times its index plus 4096.
    fn classifier(settings: &Settings) -> Classifier {
        let ranges = (0..u32::try_from(functions(settings).len()).expect("few functions"))
            .map(|function| {
                let start = 4096 + u64::from(function) * 16;
                Range { start, end: start + 16, function }
            })
            .collect();
        Classifier::new(settings, Text { ranges, vmlinux: (4096, 1 << 20) })
    }

    /// Returns the event, the class and the IP version of a stack of functions, the innermost first.
    fn classify(settings: &Settings, stack: &[&str]) -> Option<(&'static str, String, Option<IpVersion>)> {
        let (classifier, names) = (classifier(settings), functions(settings));
        let address = |function: &&str| {
            let index = names.iter().position(|name| name == function);
            // Other functions are at addresses without a range.
            index.map_or(1 << 19, |index| 4096 + index as u64 * 16 + 8)
        };
        let work = classifier.classify(stack.iter().map(address)).work?;
        Some((EVENTS[work.event].name, classifier.class(work.class).to_owned(), work.version))
    }

    #[track_caller]
    fn check(stack: &str, expected: Option<(&'static str, &str, Option<IpVersion>)>) {
        let stack: Vec<_> = stack.split(' ').collect();
        let expected = expected.map(|(event, class, version)| (event, class.to_owned(), version));
        assert_eq!(classify(&Settings::default(), &stack), expected, "{stack:?}");
    }

    const V4: Option<IpVersion> = Some(IpVersion::Ipv4);
    const V6: Option<IpVersion> = Some(IpVersion::Ipv6);

    #[test]
    fn the_innermost_function_and_the_innermost_event_count() {
        check("memcpy tcp_ack tcp_v4_rcv ip_rcv net_rx_action", Some(("receive_softirq", "tcp_receive", V4)));
        let loopback = "udpv6_rcv ip6_input net_rx_action handle_softirqs __dev_queue_xmit udpv6_sendmsg";
        check(loopback, Some(("receive_softirq", "udp_receive", V6)));
        check("memcpy net_rx_action __dev_queue_xmit udp_sendmsg", Some(("receive_softirq", "other", None)));
        check("_copy_from_iter tcp_sendmsg_locked tcp_sendmsg", Some(("socket_send", "copy", None)));
        check("udp_sendmsg udpv6_sendmsg __sys_sendto", Some(("socket_send", "udp_send", V4)));
        check("schedule tcp_recvmsg", Some(("socket_receive", "other", None)));
        check("tcp_v4_do_rcv inet_release __sock_release", Some(("socket_control", "tcp_receive", V4)));
        check("tcp_write_xmit tcp_write_timer call_timer_fn", Some(("timer", "tcp_transmit", None)));
        check("__napi_poll napi_threaded_poll kthread", Some(("kernel_thread", "driver_poll", None)));
    }

    #[test]
    fn stacks_without_an_event_are_no_network_work() {
        check("memcpy ext4_write vfs_write", None);
        check("consume_skb unix_stream_recvmsg", None);
        check("nothing", None);
        check("rcu_core handle_softirqs irq_exit_rcu tcp_sendmsg", None);
        check("__schedule asm_sysvec_apic_timer_interrupt udp_sendmsg", None);
        check("tcp_write_timer call_timer_fn __do_softirq tcp_sendmsg", Some(("timer", "other", None)));
    }

    #[test]
    fn the_caller_decides_the_class_of_a_netfilter_hook() {
        let class = |caller: &str| format!("nft_do_chain nf_hook_slow {caller} net_rx_action");
        for (caller, expected, version) in [
            ("ip_rcv", "netfilter_prerouting", V4),
            ("ipv6_rcv __netif_receive_skb_core", "netfilter_prerouting", V6),
            ("ip_local_deliver", "netfilter_input", V4),
            ("ip6_forward", "netfilter_forward", V6),
            ("ip_output ip_forward", "netfilter_output", V4),
            ("__netif_receive_skb_core", "netfilter_ingress", None),
            ("br_handle_frame __netif_receive_skb_core", "bridge", None),
            ("arp_rcv", "other", None),
        ] {
            check(&class(caller), Some(("receive_softirq", expected, version)));
        }
        check("nf_conntrack_in nf_hook_slow ip_rcv net_rx_action", Some(("receive_softirq", "conntrack", V4)));
    }

    #[test]
    fn a_packet_that_leaves_gro_or_the_driver_belongs_to_no_class() {
        let stack =
            "__netif_receive_skb_core netif_receive_skb_list_internal napi_gro_complete __napi_poll net_rx_action";
        check(stack, Some(("receive_softirq", "other", None)));
        check("tcf_classify __netif_receive_skb_core net_rx_action", Some(("receive_softirq", "tc_ingress", None)));
        check("tcf_classify __dev_queue_xmit udp_sendmsg", Some(("socket_send", "tc_egress", V4)));
    }

    #[test]
    fn classes_of_the_configuration_take_precedence() {
        let settings = serde_json::json!({ "classes": { "mine": ["ip_rcv", "nf_hook_slow", "my_function"] } });
        let settings: Settings = serde_json::from_value(settings).expect("settings");
        let class = |stack: &[&str]| classify(&settings, stack).expect("network work").1;
        assert_eq!(class(&["ip_rcv", "net_rx_action"]), "mine");
        assert_eq!(class(&["nf_hook_slow", "ip_local_deliver", "net_rx_action"]), "mine");
        assert_eq!(class(&["my_function", "tcp_v4_rcv", "net_rx_action"]), "mine");
        assert_eq!(class(&["tcp_v4_rcv", "my_function", "net_rx_action"]), "tcp_receive");
    }

    #[test]
    fn unknown_functions_outside_of_vmlinux_are_reported() {
        let classifier = classifier(&Settings::default());
        assert!(classifier.classify([1 << 21].into_iter()).unresolved);
        assert!(!classifier.classify([1 << 19].into_iter()).unresolved);
    }

    #[test]
    fn the_address_after_a_call_belongs_to_the_caller() {
        let classifier = classifier(&Settings::default());
        let names = functions(&Settings::default());
        let index = names.iter().position(|name| name == "net_rx_action").expect("a function");
        let start = 4096 + index as u64 * 16;
        let after = start + 16;
        let event = |frames: [u64; 2]| classifier.classify(frames.into_iter()).work.map(|work| EVENTS[work.event].name);
        assert_eq!(event([1 << 19, after]), Some("receive_softirq"));
        assert_eq!(event([1 << 19, start]), None);
    }

    #[test]
    fn every_function_has_one_class_or_decides_by_its_callers() {
        let mut seen = BTreeSet::new();
        for class in classes() {
            for function in class.functions {
                assert!(seen.insert((*function, class.callers)), "{function} is in two classes");
            }
        }
        let of = |list: &[&'static str]| list.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(of(IPV4).intersection(&of(IPV6)).count(), 0);
        let events: Vec<_> = EVENTS.iter().flat_map(|event| event.functions).collect();
        assert_eq!(events.iter().collect::<BTreeSet<_>>().len(), events.len(), "a function is in two events");
    }
}
