//! Cgroups: their ids and paths.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A cgroup id, unique within a hierarchy: the inode number of the cgroup's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupId(pub u64);

/// A user id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(pub u32);

/// The path of a cgroup from the root of its hierarchy, in the kernel's notation: `/`, or a sequence of names that each
/// follow a `/`. A name has any bytes except `/` and NUL.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupPath(Vec<u8>);

impl CgroupPath {
    /// Returns the path of the root cgroup.
    #[must_use]
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// Creates a path from bytes. Ignores repeated and trailing slashes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut path = Vec::with_capacity(bytes.len() + 1);
        for name in bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() { Self::root() } else { Self(path) }
    }

    /// Returns the bytes of the path.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the names in the path, from the root; no names for the root path.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the path of the first `count` names.
    #[must_use]
    pub fn ancestor(&self, count: usize) -> Self {
        let mut path = Vec::new();
        for name in self.names().take(count) {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() { Self::root() } else { Self(path) }
    }

    /// Returns the path of a child cgroup.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Self {
        Self::new(&[self.as_bytes(), b"/", name].concat())
    }

    /// Returns the owner of a user's subtree: N of the outermost `user.slice/user-N.slice` in the path. systemd
    /// delegates cgroups below that slice to the user, who can then create cgroups with any name. Returns `None`
    /// outside of these slices.
    #[must_use]
    pub fn user(&self) -> Option<Uid> {
        let parents = self.names();
        let mut pairs = parents.zip(self.names().skip(1));
        pairs.find_map(|(parent, name)| if parent == b"user.slice" { user_of_slice(name) } else { None })
    }

    /// Returns true if the other path is equal to this path or below it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        match other.0.strip_prefix(self.0.as_slice()) {
            Some(rest) => self.0 == b"/" || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }
}

/// Parses `user-N.slice`, the name that systemd-logind gives a user's slice. N has no sign and no leading zero.
pub(super) fn user_of_slice(name: &[u8]) -> Option<Uid> {
    let digits = name.strip_prefix(b"user-")?.strip_suffix(b".slice")?;
    let canonical = digits == b"0" || (!digits.starts_with(b"0") && digits.iter().all(u8::is_ascii_digit));
    let number = str::from_utf8(digits).ok().filter(|_| canonical)?.parse().ok()?;
    Some(Uid(number))
}

/// Writes control characters and invalid UTF-8 as `\xNN`, so that every path has one readable form.
impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() {
                    write!(f, "\\x{:02x}", u32::from(character))?
                } else {
                    write!(f, "{character}")?
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Serializes the readable form, or the bytes in a format between processes.
impl Serialize for CgroupPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

/// Deserializes the bytes in a format between processes.
impl<'de> Deserialize<'de> for CgroupPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self)
    }
}

impl fmt::Debug for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_have_one_readable_form() {
        for (bytes, path) in [(&b""[..], "/"), (b"/", "/"), (b"//a//b/", "/a/b"), (b"/a\xffb/\n", "/a\\xffb/\\x0a")] {
            assert_eq!(CgroupPath::new(bytes).to_string(), path);
        }
    }

    #[test]
    fn a_path_contains_its_descendants_and_no_path_with_a_common_prefix() {
        let path = |text: &str| CgroupPath::new(text.as_bytes());
        assert!(path("/").contains(&path("/a")));
        assert!(path("/a").contains(&path("/a")));
        assert!(path("/a").contains(&path("/a/b")));
        assert!(!path("/a").contains(&path("/ab")));
        assert!(!path("/a/b").contains(&path("/a")));
        assert_eq!(path("/a/b/c").ancestor(2), path("/a/b"));
        assert_eq!(path("/a").ancestor(0), CgroupPath::root());
        assert_eq!(CgroupPath::root().child(b"a").child(b"b"), path("/a/b"));
    }

    #[test]
    fn a_user_owns_the_outermost_slice_with_a_uid() {
        let user = |text: &str| CgroupPath::new(text.as_bytes()).user().map(|Uid(uid)| uid);
        for (path, uid) in [
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/docker-1.scope", Some(1000)),
            ("/user.slice/user-0.slice", Some(0)),
            ("/user.slice/user-1000.slice/user.slice/user-0.slice", Some(1000)),
            ("/kubelet/user.slice/user-4294967295.slice/a", Some(u32::MAX)),
        ] {
            assert_eq!(user(path), uid, "{path}");
        }
        for path in
            ["/", "/user.slice", "/user-1000.slice/a", "/user.slice/a/user-1000.slice", "/system.slice/a.service"]
        {
            assert_eq!(user(path), None, "{path}");
        }
        for number in ["", "01", "+1", "-1", "4294967296", "1000-2", "1\u{661}"] {
            assert_eq!(user(&format!("/user.slice/user-{number}.slice")), None, "{number}");
        }
    }
}
