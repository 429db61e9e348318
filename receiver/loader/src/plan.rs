//! Selection of the alternate that serves a hook.

use std::borrow::Cow;

use undercurrent_kernel::{
    constant::Feature,
    hooks::{Alternate, Hook, Program, Within},
    plan::{Outcome, Status},
    refusal::Refusal,
};

/// The kernel operations that planning needs.
pub trait Attach {
    /// Attaches a program.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    fn attach(&mut self, program: &Program<'_>) -> Result<(), Refusal>;

    /// Returns true if the kernel has a feature that programs of another hook need to serve a hook.
    fn has(&self, _: Feature) -> bool {
        false
    }

    /// Detaches a program; does nothing if it is not attached.
    fn detach(&mut self, program: &Program<'_>);
}

/// Attaches hooks and appends their outcomes; skips hooks that already have an outcome.
///
/// `hooks` follows the order of [`undercurrent_kernel::hooks::SHARED`]: programs of a hook may also serve a later hook.
pub fn serve_all(kernel: &mut impl Attach, hooks: impl Iterator<Item = &'static Hook>, outcomes: &mut Vec<Outcome>) {
    for hook in hooks {
        if !outcomes.iter().any(|outcome| outcome.hook == hook.name) {
            let outcome = within(kernel, outcomes, hook).unwrap_or_else(|| serve(kernel, outcomes, hook));
            outcomes.push(outcome);
        }
    }
}

/// Returns the outcome of a hook that the programs of another hook serve; `None` if they do not serve it.
#[must_use]
fn within(kernel: &impl Attach, outcomes: &[Outcome], hook: &Hook) -> Option<Outcome> {
    let Within { hook: other, alternate, requires } = hook.within?;
    if requires.is_some_and(|feature| !kernel.has(feature)) {
        return None;
    }
    let served =
        outcomes.iter().find(|outcome| outcome.hook == other.name && outcome.by.as_deref() == Some(alternate))?;
    // The other hook may be degraded because it has more to measure. Its alternate serves this hook with all its programs.
    let all = other.alternates.iter().find(|other| other.name == alternate)?.programs.len();
    let missing = served.programs.len() < all;
    Some(Outcome {
        hook: hook.name.into(),
        status: if missing { Status::Degraded } else { Status::Healthy },
        by: Some(other.name.into()),
        programs: Vec::new(),
        leaves_out: missing.then_some("events that the other hook misses".into()),
        refusals: Vec::new(),
    })
}

/// Attaches the first alternate that the kernel accepts completely; otherwise, the one with the most accepted programs.
fn serve(kernel: &mut impl Attach, outcomes: &[Outcome], hook: &Hook) -> Outcome {
    let serves = |(other, alternate): (&Hook, &str)| {
        outcomes.iter().any(|outcome| outcome.hook == other.name && outcome.by.as_deref() == Some(alternate))
    };
    let enough = hook.alternates.iter().filter(|alternate| alternate.beside.is_none_or(serves));
    serve_alternates(kernel, hook.name.into(), &enough.copied().collect::<Vec<_>>())
}

/// Attaches one of `alternates` for the hook with this name. See [`serve`] for the selection.
pub fn serve_alternates(kernel: &mut impl Attach, hook: Cow<'static, str>, alternates: &[Alternate<'_>]) -> Outcome {
    let mut refusals = Vec::new();
    let mut best: Option<(&Alternate<'_>, usize)> = None;
    for alternate in alternates {
        let attached = attach_all(kernel, alternate, &mut refusals);
        if attached.len() == alternate.programs.len() {
            return outcome(hook, alternate, attached, refusals);
        }
        let is_useful = !attached.is_empty() && !alternate.needs_all;
        if is_useful && best.is_none_or(|(_, most)| attached.len() > most) {
            best = Some((alternate, attached.len()));
        }
        for program in alternate.programs {
            kernel.detach(program);
        }
    }
    match best {
        Some((alternate, _)) => {
            let attached = attach_all(kernel, alternate, &mut Vec::new());
            outcome(hook, alternate, attached, refusals)
        }
        None => {
            Outcome { hook, status: Status::Unavailable, by: None, programs: Vec::new(), leaves_out: None, refusals }
        }
    }
}

fn attach_all(kernel: &mut impl Attach, alternate: &Alternate<'_>, refusals: &mut Vec<Refusal>) -> Vec<&'static str> {
    let mut attached = Vec::new();
    for program in alternate.programs {
        match kernel.attach(program) {
            Ok(()) => attached.push(program.symbol),
            Err(refusal) => {
                refusals.push(refusal);
                // The others would be detached again.
                if alternate.needs_all {
                    break;
                }
            }
        }
    }
    attached
}

fn outcome(
    hook: Cow<'static, str>,
    alternate: &Alternate<'_>,
    programs: Vec<&'static str>,
    refusals: Vec<Refusal>,
) -> Outcome {
    let whole = programs.len() == alternate.programs.len() && alternate.leaves_out.is_none();
    Outcome {
        hook,
        status: if whole { Status::Healthy } else { Status::Degraded },
        by: Some(alternate.name.into()),
        programs: programs.into_iter().map(Cow::Borrowed).collect(),
        leaves_out: alternate.leaves_out.map(Cow::Borrowed),
        refusals,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use undercurrent_kernel::hooks::{
        Attachment, DATAGRAM_READER, SOCKET_ARRIVAL, SOCKET_READ, SOCKET_READER, TRANSPORT, all_or_none, fentry,
    };

    /// A kernel that refuses some programs.
    struct Refusing {
        refused: BTreeSet<&'static str>,
        attached: BTreeSet<&'static str>,
    }

    impl Refusing {
        fn new(refused: &[&'static str]) -> Self {
            Self { refused: refused.iter().copied().collect(), attached: BTreeSet::new() }
        }
    }

    /// The kernel of a test about a hook that other programs serve.
    fn whole() -> Refusing {
        Refusing::new(&[])
    }

    impl Attach for Refusing {
        fn has(&self, _: Feature) -> bool {
            !self.refused.contains("bpf_cast_to_kern_ctx")
        }

        fn attach(&mut self, program: &Program<'_>) -> Result<(), Refusal> {
            if self.refused.contains(program.symbol) {
                return Err(Refusal::new(program.symbol, "", ""));
            }
            self.attached.insert(program.symbol);
            Ok(())
        }

        fn detach(&mut self, program: &Program<'_>) {
            self.attached.remove(program.symbol);
        }
    }

    /// Returns a name from the table of hooks.
    fn name(name: Cow<'static, str>) -> &'static str {
        match name {
            Cow::Borrowed(name) => name,
            Cow::Owned(name) => panic!("{name} is not in the table of hooks"),
        }
    }

    fn served(refused: &[&'static str], hook: &Hook) -> (Status, Option<&'static str>, Vec<&'static str>) {
        let mut kernel = Refusing::new(refused);
        let outcome = serve(&mut kernel, &[], hook);
        assert_eq!(
            kernel.attached,
            outcome.programs.iter().map(AsRef::as_ref).collect(),
            "the outcome lists the attached programs"
        );
        (outcome.status, outcome.by.map(name), outcome.programs.into_iter().map(name).collect())
    }

    const FENTRIES: [&str; 4] = ["tcp_v4_rcv", "tcp_v6_rcv", "udp_rcv", "udpv6_rcv"];

    /// Returns the kprobe program for the target of an fentry program.
    fn probe(fentry: &str) -> &'static str {
        let mut programs = TRANSPORT.alternates.iter().flat_map(|alternate| alternate.programs);
        let attached = |program: &&Program<'_>| program.attachment == Attachment::Kprobe && program.target == fentry;
        programs.find(attached).expect("the fentry program has a kprobe counterpart").symbol
    }

    #[test]
    fn first_alternate_is_preferred() {
        assert_eq!(served(&[], &TRANSPORT), (Status::Healthy, Some("cgroup_skb"), vec!["cgroup_ingress"]));
    }

    #[test]
    fn refused_program_moves_the_hook_to_the_next_alternate() {
        let fentries = (Status::Healthy, Some("fentry"), FENTRIES.to_vec());
        assert_eq!(served(&["cgroup_ingress"], &TRANSPORT), fentries);
        let kprobes = (Status::Healthy, Some("kprobe"), FENTRIES.map(probe).to_vec());
        assert_eq!(served(&["cgroup_ingress", "tcp_v6_rcv"], &TRANSPORT), kprobes);
        assert_eq!(
            served(&["tcp_recv_timestamp", "skb_consume_udp_probe"], &SOCKET_READ),
            (Status::Degraded, Some("tracepoint"), vec!["skb_copy_datagram_iovec"])
        );
    }

    #[test]
    fn incomplete_alternates_fall_back_to_the_one_with_most_programs() {
        let (status, by, programs) = served(&["udp_rcv", "udp_rcv_probe", "cgroup_ingress"], &TRANSPORT);
        assert_eq!((status, by), (Status::Degraded, Some("fentry")));
        assert_eq!(programs, ["tcp_v4_rcv", "tcp_v6_rcv", "udpv6_rcv"]);
    }

    #[test]
    fn alternate_that_needs_all_programs_is_not_attached_in_part() {
        static PROGRAMS: [Program<'static>; 2] = [fentry("one"), fentry("other")];
        static ALTERNATES: [Alternate<'static>; 1] = [all_or_none("fentry", &PROGRAMS)];
        let hook =
            Hook { name: "pair", reads_timestamps: false, sees_traffic: true, within: None, alternates: &ALTERNATES };
        for refused in ["one", "other"] {
            assert_eq!(served(&[refused], &hook), (Status::Unavailable, None, Vec::new()));
        }
        assert_eq!(served(&[], &hook), (Status::Healthy, Some("fentry"), vec!["one", "other"]));
    }

    #[test]
    fn hook_without_attached_programs_is_unavailable_and_keeps_refusals() {
        let programs = ["ip_rcv_core", "ip6_rcv_core", "ip_rcv_core_probe", "ip6_rcv_core_probe"];
        let mut kernel = Refusing::new(&programs);
        let outcome = serve(&mut kernel, &[], &undercurrent_kernel::hooks::IP);
        assert_eq!((outcome.status, outcome.by.as_deref(), outcome.refusals.len()), (Status::Unavailable, None, 4));
    }

    #[test]
    fn programs_of_one_hook_serve_another() {
        let served = |refused: &[&'static str]| [serve(&mut Refusing::new(refused), &[], &SOCKET_READ)];
        let reader = within(&whole(), &served(&[]), &SOCKET_READER).expect("fentry serves");
        assert_eq!(
            (reader.status, reader.by.as_deref(), reader.programs.len()),
            (Status::Healthy, Some("socket_read"), 0)
        );
        let others =
            ["tcp_recv_timestamp", "tcp_recv_timestamp_probe", "skb_consume_udp_probe", "skb_copy_datagram_iovec"];
        let reader = within(&whole(), &served(&others), &SOCKET_READER).expect("fentry serves in part");
        assert_eq!((reader.status, reader.leaves_out.is_some()), (Status::Degraded, true));
        let arrival = |refused| {
            let mut kernel = Refusing::new(refused);
            let transport = [serve(&mut kernel, &[], &TRANSPORT)];
            within(&kernel, &transport, &SOCKET_ARRIVAL).is_some()
        };
        assert!(arrival(&[]) && !arrival(&["bpf_cast_to_kern_ctx"]) && !arrival(&["cgroup_ingress"]));
        // Kprobes cannot identify the reader of a socket.
        assert_eq!(within(&whole(), &served(&["tcp_recv_timestamp"]), &SOCKET_READER), None);
        let datagrams = |refused| serve(&mut whole(), &served(refused), &DATAGRAM_READER).by;
        assert_eq!(datagrams(&["tcp_recv_timestamp", "tcp_recv_timestamp_probe"]).as_deref(), Some("cgroup_read"));
        assert_eq!(datagrams(&["tcp_recv_timestamp"]).as_deref(), Some("tracepoint"), "kprobes tell no reader");
        assert_eq!(within(&whole(), &served(&[]), &TRANSPORT), None);
        assert_eq!(within(&whole(), &[], &SOCKET_READER), None);
    }
}
