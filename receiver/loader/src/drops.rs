//! The kernel's drop reasons in its BTF.

use undercurrent_ebpf::abi::drops::{COUNTS, OTHER, SUBSYSTEM_SHIFT, index};
use undercurrent_kernel::drops::{NOT_SPECIFIED, Name, Reasons};

use super::btf::Btf;

/// The core's reasons (`include/net/dropreason-core.h`).
const REASONS: (&str, &str) = ("skb_drop_reason", "SKB_DROP_REASON_");

/// Subsystems that define further reasons (`include/net/dropreason.h`, 6.4 and later).
const SUBSYSTEMS: (&str, &str) = ("skb_drop_reason_subsys", "SKB_DROP_REASON_SUBSYS_");

/// Reads the reasons from the kernel's BTF.
#[must_use]
pub fn reasons(btf: &Btf<'_>) -> Reasons {
    let mut names = vec![Name::Unknown; COUNTS];
    let Some(reasons) = btf.enumeration(REASONS.0) else {
        names[0] = Name::Reason(NOT_SPECIFIED.to_owned());
        return Reasons(names);
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
    let counted = |(number, name): &(u32, Name)| index(*number) != OTHER && !is_an_end(name);
    for (number, name) in named.filter(counted) {
        // If several enumerators share a number, the first one is the reason.
        let known = &mut names[index(number) as usize];
        if *known == Name::Unknown {
            *known = name;
        }
    }
    Reasons(names)
}

/// Returns true for the enumerator after the last reason.
fn is_an_end(name: &Name) -> bool {
    matches!(name, Name::Reason(name) if name == "max" || name == "num")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use undercurrent_ebpf::abi::drops::CORE;
    use undercurrent_kernel::drops::UNNAMED;

    use super::*;
    use crate::btf::tests::KERNELS;

    /// Returns the reasons of each fixture's kernel.
    fn every_kernel() -> [Reasons; KERNELS.len()] {
        KERNELS.each_ref().map(|kernel| reasons(&Btf::parse(kernel.raw).expect("sound BTF")))
    }

    fn find(reasons: &Reasons, name: &str) -> Option<usize> {
        (0..COUNTS).find(|index| reasons.at(*index) == Some(name))
    }

    #[test]
    fn reasons_depend_on_the_kernel() {
        // Numbers from `include/net/dropreason-core.h` of 6.1, 6.12 and 7.2.
        assert_eq!(
            every_kernel().each_ref().map(|reasons| find(reasons, "no_socket")),
            [None, Some(2), Some(3), Some(3), Some(3)]
        );
        assert_eq!(
            every_kernel().each_ref().map(|reasons| find(reasons, NOT_SPECIFIED)),
            [Some(0), Some(1), Some(2), Some(2), Some(2)]
        );
    }

    #[test]
    fn packets_that_were_not_dropped_have_no_reason() {
        for (kernel, reasons) in KERNELS.iter().zip(every_kernel()).skip(1) {
            assert_eq!(reasons.at(0), None, "SKB_NOT_DROPPED_YET of {}", kernel.release);
        }
        assert_eq!(every_kernel()[4].at(1), None, "SKB_CONSUMED");
    }

    #[test]
    fn subsystems_and_unknown_reasons_have_names() {
        let newest = &every_kernel()[4];
        assert_eq!(newest.at(CORE as usize), Some("mac80211_unusable"));
        assert_eq!(newest.at(CORE as usize + 2), Some("qdisc"));
        assert_eq!([OTHER as usize, COUNTS, CORE as usize - 1].map(|index| newest.at(index)), [Some(UNNAMED); 3]);
    }

    #[test]
    fn names_of_reasons_are_unique() {
        for reasons in every_kernel() {
            let named = (0..COUNTS).filter_map(|index| reasons.at(index)).filter(|name| *name != UNNAMED);
            let names: Vec<&str> = named.collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        }
    }
}
