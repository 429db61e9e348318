//! The names that Kubernetes gives the cgroups of pods.

use super::{Above, PodUid};

const QOS: [&[u8]; 2] = [b"burstable", b"besteffort"];

/// The pod whose own cgroup has this name, below these.
pub(super) fn named(name: &[u8], above: Above<'_>) -> Option<PodUid> {
    // The kubelet runs as root and makes no pods in a user's subtree.
    if above.user.is_some() {
        return None;
    }
    if let Some(uid) = name.strip_prefix(b"pod") {
        let parent = above.names.into_iter().flatten().find(|parent| !QOS.contains(parent));
        return if parent == Some(b"kubepods") { read(uid, b'-') } else { None };
    }
    of_slice(name)
}

/// The pod of a slice as the kubelet names it: its parents' names, `pod` and the uid, joined by dashes, so that the uid
/// has underscores instead. `.slice` is missing where something took the name for a directory's.
pub(super) fn of_slice(name: &[u8]) -> Option<PodUid> {
    let name = name.strip_suffix(b".slice").unwrap_or(name);
    let at = name.windows(4).rposition(|window| window == b"-pod")?;
    let (group, uid) = (&name[..at], &name[at + 4..]);
    let group = QOS.iter().find_map(|qos| group.strip_suffix(*qos)?.strip_suffix(b"-")).unwrap_or(group);
    if group == b"kubepods" || group.ends_with(b"-kubepods") { read(uid, b'_') } else { None }
}

/// A UUID with its dashes written as `separator`, or the 32 digits that the kubelet makes of a static pod's manifest.
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

/// A lower-case hexadecimal digit.
pub(super) fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}
