//! Cgroup names that Kubernetes gives to pods.

use super::{Above, PodUid};

const QOS: [&[u8]; 2] = [b"burstable", b"besteffort"];

/// Returns the pod with this cgroup name, given the names of its ancestors.
pub(super) fn named(name: &[u8], above: Above<'_>) -> Option<PodUid> {
    // The kubelet runs as root and creates no pods in the subtree of a user.
    if above.user.is_some() {
        return None;
    }
    if let Some(uid) = name.strip_prefix(b"pod") {
        let parent = above.names.into_iter().flatten().find(|parent| !QOS.contains(parent));
        return if parent == Some(b"kubepods") { read(uid, b'-') } else { None };
    }
    of_slice(name)
}

/// Parses the slice name of a pod: the names of the parents, `pod` and the uid, joined by dashes. The kubelet replaces
/// dashes in the uid by underscores. `.slice` is absent if a runtime used the name for a plain directory.
pub(super) fn of_slice(name: &[u8]) -> Option<PodUid> {
    let name = name.strip_suffix(b".slice").unwrap_or(name);
    let at = name.windows(4).rposition(|window| window == b"-pod")?;
    let (group, uid) = (&name[..at], &name[at + 4..]);
    let group = QOS.iter().find_map(|qos| group.strip_suffix(*qos)?.strip_suffix(b"-")).unwrap_or(group);
    if group == b"kubepods" || group.ends_with(b"-kubepods") { read(uid, b'_') } else { None }
}

/// Parses a UUID with `separator` in the place of dashes, or the 32-digit hash of a static pod's manifest.
fn read(uid: &[u8], separator: u8) -> Option<PodUid> {
    let valid = match uid.len() {
        32 => uid.iter().all(is_digit),
        36 => uid.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == separator,
            _ => is_digit(byte),
        }),
        _ => false,
    };
    let text = str::from_utf8(uid).ok().filter(|_| valid)?;
    Some(PodUid(text.replace(char::from(separator), "-")))
}

/// Returns true for a lower-case hexadecimal digit.
pub(super) fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}
