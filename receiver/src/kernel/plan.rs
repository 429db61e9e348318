//! Which alternate serves each hook.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    hooks::{Alternate, Hook, Program},
    refusal::Refusal,
};

/// How well a hook, or a signal, is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Healthy,
    /// Nothing here makes it happen, which is as it should be too; of signals alone.
    Idle,
    /// Something is not seen.
    Degraded,
    /// Nothing is seen.
    Unavailable,
}

impl Status {
    /// The states of a signal.
    pub const ALL: [Self; 4] = [Self::Healthy, Self::Degraded, Self::Unavailable, Self::Idle];
    /// The states of a hook.
    pub const OF_HOOKS: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Unavailable];

    /// The word for people and attributes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Idle => "idle",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How well a signal is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignalStatus {
    /// The signal.
    pub signal: &'static str,
    /// Absent too where the configuration does not want it; `reasons` says so.
    pub status: Status,
    /// Whether the configuration wants it.
    pub enabled: bool,
    /// What keeps it from being whole.
    pub reasons: Vec<String>,
}

/// What came of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The hook: its name, or the function that the user named.
    pub hook: Cow<'static, str>,
    /// How well it is served.
    pub status: Status,
    /// The alternate that serves it.
    pub by: Option<Cow<'static, str>>,
    /// The programs attached.
    pub programs: Vec<Cow<'static, str>>,
    /// What the serving alternate does not see.
    pub leaves_out: Option<Cow<'static, str>>,
    /// What was refused on the way, in the order of the alternates.
    pub refusals: Vec<Refusal>,
}

/// The kernel, as far as planning needs it.
pub trait Attach {
    /// Attaches a program.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn attach(&mut self, program: &Program<'_>) -> Result<(), Refusal>;

    /// Undoes it.
    fn detach(&mut self, program: &Program<'_>);
}

/// Serves hooks in the order of [`super::hooks::ALL`], since programs of some do the work of those after them, and adds what
/// comes of each to what came of others before.
pub fn serve_all(kernel: &mut impl Attach, hooks: impl Iterator<Item = &'static Hook>, outcomes: &mut Vec<Outcome>) {
    for hook in hooks {
        if !outcomes.iter().any(|outcome| outcome.hook == hook.name) {
            outcomes.push(within(outcomes, hook).unwrap_or_else(|| serve(kernel, hook)));
        }
    }
}

/// What comes of a hook whose work another one's programs do, by what came of that one.
#[must_use]
fn within(outcomes: &[Outcome], hook: &Hook) -> Option<Outcome> {
    let (other, alternate) = hook.within?;
    let served =
        outcomes.iter().find(|outcome| outcome.hook == other.name && outcome.by.as_deref() == Some(alternate))?;
    Some(Outcome {
        hook: hook.name.into(),
        status: served.status,
        by: Some(other.name.into()),
        programs: Vec::new(),
        leaves_out: (served.status != Status::Healthy).then_some("reads that the other hook does not see".into()),
        refusals: Vec::new(),
    })
}

/// Serves a hook by the first alternate of which every program attaches, else by the one that got furthest.
fn serve(kernel: &mut impl Attach, hook: &Hook) -> Outcome {
    serve_by(kernel, hook.name.into(), hook.alternates)
}

/// The same of a hook that has a name and alternates.
pub fn serve_by(kernel: &mut impl Attach, hook: Cow<'static, str>, alternates: &[Alternate<'_>]) -> Outcome {
    let mut refusals = Vec::new();
    let mut best: Option<(&Alternate<'_>, usize)> = None;
    for alternate in alternates {
        let attached = attach_all(kernel, alternate, &mut refusals);
        if attached.len() == alternate.programs.len() {
            return outcome(hook, alternate, attached, refusals);
        }
        if best.is_none_or(|(_, most)| attached.len() > most) && !attached.is_empty() {
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
            Err(refusal) => refusals.push(refusal),
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
    use crate::kernel::hooks::{Attachment, SOCKET_READ, SOCKET_READER, TRANSPORT};

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

    impl Attach for Refusing {
        fn attach(&mut self, program: &Program<'_>) -> Result<(), Refusal> {
            if self.refused.contains(program.symbol) {
                return Err(Refusal { program: program.symbol.into(), what: String::new(), cure: String::new() });
            }
            self.attached.insert(program.symbol);
            Ok(())
        }

        fn detach(&mut self, program: &Program<'_>) {
            self.attached.remove(program.symbol);
        }
    }

    /// A name of the table of hooks.
    fn name(name: Cow<'static, str>) -> &'static str {
        match name {
            Cow::Borrowed(name) => name,
            Cow::Owned(name) => panic!("{name} is in no table"),
        }
    }

    fn served(refused: &[&'static str], hook: &Hook) -> (Status, Option<&'static str>, Vec<&'static str>) {
        let mut kernel = Refusing::new(refused);
        let outcome = serve(&mut kernel, hook);
        assert_eq!(
            kernel.attached,
            outcome.programs.iter().map(AsRef::as_ref).collect(),
            "what is attached is what is reported"
        );
        (outcome.status, outcome.by.map(name), outcome.programs.into_iter().map(name).collect())
    }

    const FENTRIES: [&str; 4] = ["tcp_v4_rcv", "tcp_v6_rcv", "udp_rcv", "udpv6_rcv"];

    /// The program that does the same by a kprobe.
    fn probe(fentry: &str) -> &'static str {
        let mut programs = TRANSPORT.alternates.iter().flat_map(|alternate| alternate.programs);
        let attached = |program: &&Program<'_>| program.attachment == Attachment::Kprobe && program.target == fentry;
        programs.find(attached).expect("it has one").symbol
    }

    #[test]
    fn the_first_alternate_serves_where_it_attaches() {
        assert_eq!(served(&[], &TRANSPORT), (Status::Healthy, Some("fentry"), FENTRIES.to_vec()));
    }

    #[test]
    fn the_next_alternate_serves_whole_and_alone() {
        let kprobes = (Status::Healthy, Some("kprobe"), FENTRIES.map(probe).to_vec());
        assert_eq!(served(&FENTRIES, &TRANSPORT), kprobes);
        assert_eq!(served(&["tcp_v6_rcv"], &TRANSPORT), kprobes);
        assert_eq!(
            served(&["tcp_v6_rcv", "udp_rcv_probe"], &TRANSPORT),
            (Status::Degraded, Some("cgroup_skb"), vec!["cgroup_ingress"])
        );
        assert_eq!(
            served(&["tcp_recv_timestamp", "skb_consume_udp_probe"], &SOCKET_READ),
            (Status::Degraded, Some("tracepoint"), vec!["skb_copy_datagram_iovec"])
        );
    }

    #[test]
    fn the_one_that_got_furthest_serves_where_none_is_whole() {
        let (status, by, programs) = served(&["udp_rcv", "udp_rcv_probe", "cgroup_ingress"], &TRANSPORT);
        assert_eq!((status, by), (Status::Degraded, Some("fentry")));
        assert_eq!(programs, ["tcp_v4_rcv", "tcp_v6_rcv", "udpv6_rcv"]);
    }

    #[test]
    fn a_hook_that_nothing_serves_is_absent_and_says_why() {
        let programs = ["ip_rcv_core", "ip6_rcv_core", "ip_rcv_core_probe", "ip6_rcv_core_probe"];
        let mut kernel = Refusing::new(&programs);
        let outcome = serve(&mut kernel, &crate::kernel::hooks::IP);
        assert_eq!((outcome.status, outcome.by.as_deref(), outcome.refusals.len()), (Status::Unavailable, None, 4));
    }

    #[test]
    fn one_hooks_programs_may_do_the_work_of_another() {
        let served = |refused: &[&'static str]| [serve(&mut Refusing::new(refused), &SOCKET_READ)];
        let reader = within(&served(&[]), &SOCKET_READER).expect("fentry serves");
        assert_eq!(
            (reader.status, reader.by.as_deref(), reader.programs.len()),
            (Status::Healthy, Some("socket_read"), 0)
        );
        let others =
            ["tcp_recv_timestamp", "tcp_recv_timestamp_probe", "skb_consume_udp_probe", "skb_copy_datagram_iovec"];
        let reader = within(&served(&others), &SOCKET_READER).expect("fentry serves in part");
        assert_eq!((reader.status, reader.leaves_out.is_some()), (Status::Degraded, true));
        // By kprobes nothing is known of sockets' readers.
        assert_eq!(within(&served(&["tcp_recv_timestamp"]), &SOCKET_READER), None);
        assert_eq!(within(&served(&[]), &TRANSPORT), None);
        assert_eq!(within(&[], &SOCKET_READER), None);
    }
}
