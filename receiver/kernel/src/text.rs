//! The address ranges of kernel functions, from `/proc/kallsyms`.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader},
};

use serde::{Deserialize, Serialize};

const PATH: &str = "/proc/kallsyms";

/// The largest distance from the beginning of a function to its end, in bytes. The next symbol of the last function of a
/// module is far away.
const LARGEST: u64 = 1 << 16;

/// The address range of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The index of the function in the list of requested functions.
    pub function: u32,
}

/// The address ranges of the requested functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// The ranges in ascending order. A function has several ranges if its name is not unique, or if the compiler divided it.
    pub ranges: Vec<Range>,
    /// The addresses of vmlinux's functions: the first one, and the one after the last one.
    pub vmlinux: (u64, u64),
}

/// The addresses of functions cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file cannot be read.
    #[error("cannot read {PATH}: {0}")]
    Unreadable(#[from] io::Error),
    /// The kernel hides addresses.
    #[error(
        "the kernel hides the addresses of its functions: grant CAP_SYSLOG, and set kernel.kptr_restrict to 0 or 1"
    )]
    Hidden,
}

impl Text {
    /// Finds functions in the running kernel and its modules.
    ///
    /// # Errors
    /// If the kernel hides addresses.
    pub fn read(functions: &[String]) -> Result<Self, TextError> {
        Self::parse(BufReader::new(File::open(PATH)?), functions)
    }

    /// Finds functions in lines of an address, a type, a name and an optional module in brackets.
    fn parse(mut lines: impl BufRead, functions: &[String]) -> Result<Self, TextError> {
        let numbers: HashMap<&str, u32> = functions.iter().map(String::as_str).zip(0..).collect();
        let (mut starts, mut found, mut vmlinux) = (Vec::new(), Vec::new(), (0, 0));
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            if let Some((start, name)) = function(&line) {
                starts.push(start);
                match name {
                    "_stext" => vmlinux.0 = start,
                    "_etext" => vmlinux.1 = start,
                    _ => {}
                }
                // The compiler appends suffixes, for example `.isra.0` and `.cold`.
                let base = name.split_once('.').map_or(name, |(base, _)| base);
                found.extend(numbers.get(base).map(|function| (start, *function)));
            }
            line.clear();
        }
        if starts.iter().all(|start| *start == 0) {
            return Err(TextError::Hidden);
        }
        starts.sort_unstable();
        starts.dedup();
        let mut ranges: Vec<_> = found.into_iter().map(|(start, function)| range(start, function, &starts)).collect();
        ranges.sort_unstable();
        Ok(Self { ranges, vmlinux })
    }

    /// Returns the function at an address.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        self.ranges[..after].last().filter(|range| address < range.end).map(|range| range.function)
    }

    /// Returns true if an address belongs to a module or to a BPF program.
    #[must_use]
    pub const fn is_outside_vmlinux(&self, address: u64) -> bool {
        address < self.vmlinux.0 || address >= self.vmlinux.1
    }
}

/// Returns the address and the name of each function in the text of `/proc/kallsyms`.
pub fn functions(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.lines().filter_map(function)
}

/// Returns the address and the name of a line's function; `None` if the symbol is no function.
fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    matches!(kind, "t" | "T" | "w" | "W").then_some(())?;
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

fn range(start: u64, function: u32, starts: &[u64]) -> Range {
    let next = starts.get(starts.partition_point(|other| *other <= start)).copied().unwrap_or(u64::MAX);
    Range { start, end: next.min(start.saturating_add(LARGEST)), function }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
ffffffff81000000 T _stext
ffffffff81000010 T net_rx_action
ffffffff81000100 t tcp_ack.isra.0
ffffffff81000180 d some_data
ffffffff81000200 T tcp_v4_rcv
ffffffff81000300 T _etext
ffffffffc0002000 t br_handle_frame\t[bridge]
ffffffffc0001000 t helper\t[bridge]
ffffffff81000280 t tcp_ack.cold
";

    fn text() -> Text {
        let functions = ["br_handle_frame", "tcp_ack", "net_rx_action", "absent"].map(str::to_owned);
        Text::parse(LINES.as_bytes(), &functions).expect("symbols")
    }

    #[test]
    fn a_function_ends_at_the_next_function() {
        let text = text();
        let at = |address| text.function(address);
        assert_eq!(at(0xffff_ffff_8100_000f), None);
        assert_eq!(at(0xffff_ffff_8100_0010), Some(2));
        assert_eq!(at(0xffff_ffff_8100_00ff), Some(2));
        assert_eq!(at(0xffff_ffff_8100_01ff), Some(1), "data does not end a function");
        assert_eq!(at(0xffff_ffff_8100_0200), None);
        assert_eq!(at(0xffff_ffff_8100_0280), Some(1), "the part that the compiler moved away");
        assert_eq!(at(0xffff_ffff_c000_2fff), Some(0));
        assert_eq!(at(0xffff_ffff_c001_2000), None, "the last function has a largest size");
    }

    #[test]
    fn addresses_outside_of_vmlinux_are_recognized() {
        let text = text();
        let outside = [0xffff_ffff_8100_0000, 0xffff_ffff_8100_02ff, 0xffff_ffff_8100_0300, 0xffff_ffff_c000_1000]
            .map(|address| text.is_outside_vmlinux(address));
        assert_eq!(outside, [false, false, true, true]);
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 T net_rx_action\n";
        assert!(matches!(Text::parse(hidden.as_bytes(), &["net_rx_action".to_owned()]), Err(TextError::Hidden)));
        assert!(matches!(Text::parse("".as_bytes(), &[]), Err(TextError::Hidden)));
    }
}
