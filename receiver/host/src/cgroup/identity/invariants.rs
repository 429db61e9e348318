//! Invariants of [`identify`] for every path, shared by the property tests and the fuzz target.

use super::{CgroupPath, Identity, identify};

/// Names that never identify a container, below any parent.
const BELOW: [&[u8]; 6] = [b"init.scope", b"system.slice", b"sshd.service", b"container", b"a:b:c", b"\xff\n"];

/// Panics if an invariant is violated.
pub fn check(path: &CgroupPath) {
    let names = path.names().count();
    let Some((identity, depth)) = identify(path) else { return };
    assert!((1..=names).contains(&depth), "{path}: {depth} of {names}");
    assert_eq!(identify(&path.ancestor(depth)), Some((identity.clone(), depth)), "{path}");
    if !matches!(identity, Identity::Container { .. }) {
        return;
    }
    let mut below = path.ancestor(depth).as_bytes().to_vec();
    for name in BELOW {
        below.push(b'/');
        below.extend_from_slice(name);
        let below = CgroupPath::new(&below);
        assert_eq!(identify(&below), Some((identity.clone(), depth)), "{below}");
    }
}
