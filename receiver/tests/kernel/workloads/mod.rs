//! Tests of attribution, with cgroups and processes in them that create sockets, pass them on and read them.

mod causes;
mod charges;
mod client;
mod drops;
mod energy;
mod estimates;
mod exits;
mod filtered;
mod groups;
mod listeners;
mod message;
mod multipath;
mod namespaces;
mod passed;
mod peers;
mod processor;
mod retransmits;
mod rtt;
mod scene;
mod shared;
mod sockets;
mod throttled;
mod transactions;
mod usage;
mod watch;
mod worker;
