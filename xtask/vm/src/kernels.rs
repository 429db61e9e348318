//! Kernels that `--kernel` can name, and their packages in Debian's archive.

use anyhow::Context as _;

/// A kernel that `--kernel` can name.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The short version.
    pub name: &'static str,
    /// The suite of Debian's archive with the packages.
    pub suite: &'static str,
    /// Names of the packages. Each `*` matches digits and dots. The newest match of the first name is the version of the others.
    pub packages: &'static [&'static str],
}

/// All kernels, oldest first. The cloud flavour has every hook, but half as many modules as the general flavour, which has the
/// drivers of NICs. The real-time flavour has `PREEMPT_RT`.
pub const KERNELS: &[Kernel] = &[
    Kernel { name: "5.10", suite: "bullseye-security", packages: &["linux-image-5.10.0-*-cloud-amd64"] },
    Kernel { name: "6.1", suite: "bookworm-security", packages: &["linux-image-6.1.0-*-cloud-amd64"] },
    Kernel { name: "6.12", suite: "bookworm-security", packages: &["linux-image-6.12.*+deb*-cloud-amd64"] },
    Kernel { name: "6.12-general", suite: "bookworm-security", packages: &["linux-image-6.12.*+deb*-amd64"] },
    Kernel { name: "6.12-rt", suite: "bookworm-security", packages: &["linux-image-6.12.*+deb*-rt-amd64"] },
    Kernel {
        name: "7",
        suite: "sid",
        // Since 7.0, `linux-image` is a metapackage of these.
        packages: &[
            "linux-binary-7.*+deb*-cloud-amd64",
            "linux-modules-7.*+deb*-cloud-amd64",
            "linux-base-7.*+deb*-cloud-amd64",
        ],
    },
];

/// Returns a kernel by name.
pub fn named(name: &str) -> anyhow::Result<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name).with_context(|| {
        let names: Vec<_> = KERNELS.iter().map(|kernel| kernel.name).collect();
        format!("unknown kernel; known kernels: {}", names.join(", "))
    })
}

impl Kernel {
    /// Returns the prefix of all names that the first pattern matches.
    pub fn prefix(&self) -> &'static str {
        self.packages.first().and_then(|pattern| pattern.split('*').next()).unwrap_or_default()
    }

    /// Returns the packages of the newest build among `names`, or `None` if no name matches.
    pub fn newest<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<Vec<String>> {
        let (first, _) = self.packages.split_first()?;
        let newest = names.into_iter().filter_map(|name| captures(first, name)).max_by_key(|found| numbers(found))?;
        Some(self.packages.iter().map(|pattern| fill(pattern, &newest)).collect())
    }
}

/// Returns the parts of `name` that the `*` of a pattern match.
fn captures<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let mut parts = pattern.split('*');
    let mut rest = name.strip_prefix(parts.next()?)?;
    let mut found = Vec::new();
    for part in parts {
        let end = rest.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (version, tail) = rest.split_at(end);
        if version.is_empty() {
            return None;
        }
        found.push(version);
        rest = tail.strip_prefix(part)?;
    }
    rest.is_empty().then_some(found)
}

/// Splits versions into numbers for comparison: 6.12.9 is older than 6.12.10.
fn numbers(found: &[&str]) -> Vec<u64> {
    found.iter().flat_map(|version| version.split('.')).map(|number| number.parse().unwrap_or(0)).collect()
}

fn fill(pattern: &str, found: &[&str]) -> String {
    let mut parts = pattern.split('*');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for (part, version) in parts.zip(found) {
        name.push_str(version);
        name.push_str(part);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let names = [
            "linux-image-6.12.9+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.200+deb12-rt-amd64",
            "linux-image-6.12.201+deb12-amd64",
            "linux-image-6.12-cloud-amd64",
        ];
        let newest = named("6.12").unwrap().newest(names);
        assert_eq!(newest.unwrap(), ["linux-image-6.12.117+deb12-cloud-amd64"]);
    }

    #[test]
    fn all_packages_of_a_kernel_come_from_one_build() {
        let names = [
            "linux-binary-7.2.13+deb14-cloud-amd64",
            "linux-binary-7.10.1+deb14-cloud-amd64",
            "linux-binary-7.10.1+deb14-amd64",
        ];
        let newest = named("7").unwrap().newest(names).unwrap();
        assert_eq!(
            newest,
            [
                "linux-binary-7.10.1+deb14-cloud-amd64",
                "linux-modules-7.10.1+deb14-cloud-amd64",
                "linux-base-7.10.1+deb14-cloud-amd64"
            ]
        );
    }

    #[test]
    fn a_suite_without_the_kernel_yields_none() {
        assert_eq!(named("6.1").unwrap().newest(["linux-image-6.12.117+deb12-cloud-amd64"]), None);
        assert_eq!(named("6.1").unwrap().newest(["linux-image-6.1.0--cloud-amd64"]), None);
    }

    #[test]
    fn an_unknown_name_lists_the_known_kernels() {
        assert!(named("6.13").unwrap_err().to_string().contains("5.10, 6.1, 6.12, 6.12-general, 6.12-rt, 7"));
    }
}
