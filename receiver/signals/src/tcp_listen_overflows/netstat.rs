//! The kernel's counter in `/proc/net/netstat`: for each protocol a line of names and a line of values (`netstat_seq_show` in
//! `net/ipv4/proc.c`).

use std::{fs, io};

use crate::{
    ReadError, Signal,
    telemetry::{Attributes, Data, Descriptor, Metric, Point, Readings, UnixNanos},
    workloads::{Slot, Workloads},
};

const SOURCE: &str = "/proc/net/netstat";
const PROTOCOL: &str = "TcpExt:";
const COUNTER: &str = "ListenOverflows";

/// The growth of the counter since the start, which counts for the node.
pub struct Netstat {
    metric: &'static Descriptor,
    start: UnixNanos,
    last: u64,
    total: u64,
}

impl Netstat {
    /// Starts at zero.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn start(metric: &'static Descriptor, start: UnixNanos) -> Result<Self, ReadError> {
        Ok(Self { metric, start, last: overflows()?, total: 0 })
    }
}

impl Signal for Netstat {
    fn read(&mut self, _: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let now = overflows()?;
        self.total += now.saturating_sub(self.last);
        self.last = now;
        let (attributes, data) = (Attributes::new(), Data::count(self.total));
        let points = vec![Point { attributes, start: self.start, data }];
        readings.add(Slot::NODE, Metric { descriptor: self.metric, points });
        Ok(())
    }
}

fn overflows() -> Result<u64, ReadError> {
    let failed = |source| ReadError { what: SOURCE, source };
    let text = fs::read_to_string(SOURCE).map_err(failed)?;
    parse(&text).ok_or_else(|| failed(io::Error::other(format!("no {PROTOCOL} {COUNTER}"))))
}

fn parse(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(PROTOCOL));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|name| name == COUNTER)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_counter_is_found_by_its_name() {
        let text =
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 17 18\nIpExt: ListenOverflows\nIpExt: 5\n";
        assert_eq!(parse(text), Some(17));
        assert_eq!(parse("TcpExt: SyncookiesSent\nTcpExt: 0\n"), None);
        assert_eq!(parse("TcpExt: ListenOverflows\n"), None);
        assert!(parse(&fs::read_to_string(SOURCE).expect("the kernel's file")).is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(TcpExt:|IpExt:|[ a-zA-Z0-9\n]){0,40}") {
            let _ = parse(&text);
        }
    }
}
