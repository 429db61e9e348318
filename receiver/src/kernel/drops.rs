//! Why the kernel drops packets: names for what programs count by number.

use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::drops::{COUNTS, OTHER, SUBSYSTEM_SHIFT, index};

use super::btf::Btf;

/// The core's reasons (`include/net/dropreason-core.h`).
const REASONS: (&str, &str) = ("skb_drop_reason", "SKB_DROP_REASON_");
/// Subsystems with reasons of their own (`include/net/dropreason.h`, 6.4 and later).
const SUBSYSTEMS: (&str, &str) = ("skb_drop_reason_subsys", "SKB_DROP_REASON_SUBSYS_");

/// The reason that stands for none, as kernels that give reasons call it too.
pub const NOT_SPECIFIED: &str = "not_specified";
/// What the running kernel's types have no name for.
pub const UNNAMED: &str = "other";

/// The running kernel's reasons, in lower case without what all begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons(Vec<Name>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Name {
    Reason(String),
    /// A number that stands for a packet that was not dropped.
    NoDrop,
    Unknown,
}

impl Name {
    /// Whether it names the number after the last one.
    fn is_an_end(&self) -> bool {
        matches!(self, Self::Reason(name) if name == "max" || name == "num")
    }
}

impl Reasons {
    /// What the kernel's types say.
    #[must_use]
    pub fn of(btf: &Btf<'_>) -> Self {
        let mut names = vec![Name::Unknown; COUNTS];
        let Some(reasons) = btf.enumeration(REASONS.0) else {
            names[0] = Name::Reason(NOT_SPECIFIED.to_owned());
            return Self(names);
        };
        let subsystems = btf.enumeration(SUBSYSTEMS.0).unwrap_or_default();
        let of_subsystem = |(name, number): &(&str, i64)| {
            let number = u32::try_from(*number).ok().filter(|number| *number > 0)?.checked_shl(SUBSYSTEM_SHIFT)?;
            Some((number, Name::Reason(name.strip_prefix(SUBSYSTEMS.1)?.to_lowercase())))
        };
        let of_core = |(name, number): &(&str, i64)| {
            let reason = name.strip_prefix(REASONS.1).map(|name| Name::Reason(name.to_lowercase()));
            Some((u32::try_from(*number).ok()?, reason.unwrap_or(Name::NoDrop)))
        };
        let named = subsystems.iter().filter_map(of_subsystem).chain(reasons.iter().filter_map(of_core));
        let counted = |(number, name): &(u32, Name)| index(*number) != OTHER && !name.is_an_end();
        for (number, name) in named.filter(counted) {
            // Where several have one number the first is the one that is used.
            let known = &mut names[index(number) as usize];
            if *known == Name::Unknown {
                *known = name;
            }
        }
        Self(names)
    }

    /// Returns the name of the reason that counts at this index; `None` if its packets were not dropped.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&str> {
        match self.0.get(index) {
            Some(Name::Reason(name)) => Some(name),
            Some(Name::NoDrop) => None,
            Some(Name::Unknown) | None => Some(UNNAMED),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use undercurrent_ebpf::abi::drops::CORE;

    use super::*;
    use crate::kernel::btf::tests::KERNELS;

    /// The reasons of each of the fixtures' kernels.
    fn reasons() -> [Reasons; KERNELS.len()] {
        KERNELS.each_ref().map(|kernel| Reasons::of(&Btf::parse(kernel.raw).expect("sound BTF")))
    }

    fn find(reasons: &Reasons, name: &str) -> Option<usize> {
        (0..COUNTS).find(|index| reasons.at(*index) == Some(name))
    }

    #[test]
    fn every_kernel_names_its_own_numbers() {
        // As `include/net/dropreason-core.h` has them in 6.1, 6.12 and 7.2.
        assert_eq!(
            reasons().each_ref().map(|reasons| find(reasons, "no_socket")),
            [None, Some(2), Some(3), Some(3), Some(3)]
        );
        assert_eq!(
            reasons().each_ref().map(|reasons| find(reasons, NOT_SPECIFIED)),
            [Some(0), Some(1), Some(2), Some(2), Some(2)]
        );
    }

    #[test]
    fn what_is_no_drop_has_no_name() {
        for (kernel, reasons) in KERNELS.iter().zip(reasons()).skip(1) {
            assert_eq!(reasons.at(0), None, "SKB_NOT_DROPPED_YET of {}", kernel.release);
        }
        assert_eq!(reasons()[4].at(1), None, "SKB_CONSUMED");
    }

    #[test]
    fn subsystems_have_one_name_each_and_the_rest_is_other() {
        let newest = &reasons()[4];
        assert_eq!(newest.at(CORE as usize), Some("mac80211_unusable"));
        assert_eq!(newest.at(CORE as usize + 2), Some("qdisc"));
        assert_eq!([OTHER as usize, COUNTS, CORE as usize - 1].map(|index| newest.at(index)), [Some(UNNAMED); 3]);
    }

    #[test]
    fn no_two_places_have_one_name_but_the_nameless() {
        for reasons in reasons() {
            let named = (0..COUNTS).filter_map(|index| reasons.at(index)).filter(|name| *name != UNNAMED);
            let names: Vec<&str> = named.collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        }
    }
}
