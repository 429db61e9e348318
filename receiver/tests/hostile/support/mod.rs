//! Attackers, their surroundings, and the sidecar that they attack.

#[path = "../../support/attached.rs"]
pub mod attached;
#[path = "../../support/cgroups.rs"]
#[expect(dead_code, reason = "unit tests use the rest")]
pub mod cgroups;
#[path = "../../support/collector.rs"]
#[expect(dead_code, reason = "the kernel suite uses the rest")]
pub mod collector;
pub mod containers;
pub mod fuse;
pub mod http2;
#[path = "../../support/line.rs"]
pub mod line;
pub mod player;
#[path = "../../support/processes.rs"]
pub mod processes;
pub mod random;
pub mod runtime;
#[path = "../../support/sidecar.rs"]
#[expect(dead_code, reason = "the kernel suite uses the rest")]
pub mod sidecar;
#[path = "../../support/span.rs"]
#[expect(dead_code, reason = "the kernel suite uses the rest")]
pub mod span;
pub mod status;
#[path = "../../support/surroundings.rs"]
#[expect(dead_code, reason = "the kernel suite uses the rest")]
pub mod surroundings;
pub mod tree;
