//! The kernel's counters of each CPU's receive softirq, from `/proc/net/softnet_stat`: a line of hexadecimal columns for each online CPU (`softnet_seq_show` in
//! `net/core/net-procfs.c`). The CPU number is the 13th column, which kernels before 5.10 lack.

use std::{collections::BTreeMap, fs, io};

/// The file of the counters.
pub const SOURCE: &str = "/proc/net/softnet_stat";

/// The counters of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The CPU number.
    pub cpu: u32,
    /// Packets processed, packets dropped, and time squeezes. Each counter wraps at 2^32.
    pub counts: [u32; 3],
}

/// A line with an unknown format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not what any known kernel writes")]
pub struct ParseError {
    line: usize,
}

const CPU_COLUMN: usize = 12;

/// Reads the counters of every online CPU.
///
/// # Errors
/// If the file cannot be read, or has an unknown format.
pub fn read() -> io::Result<Vec<Row>> {
    parse(&fs::read_to_string(SOURCE)?).map_err(io::Error::other)
}

/// Returns the number of processed packets of each CPU, modulo 2^32.
///
/// # Errors
/// If the file cannot be read, or has an unknown format.
pub fn processed() -> io::Result<BTreeMap<u32, u32>> {
    Ok(read()?.into_iter().map(|row| (row.cpu, row.counts[0])).collect())
}

/// Parses the content of the file.
///
/// # Errors
/// If a line has fewer than three hexadecimal columns.
pub fn parse(text: &str) -> Result<Vec<Row>, ParseError> {
    let row = |(index, line): (usize, &str)| {
        let malformed = || ParseError { line: index + 1 };
        let columns: Result<Vec<u32>, _> =
            line.split_ascii_whitespace().map(|word| u32::from_str_radix(word, 16)).collect();
        let columns = columns.map_err(|_| malformed())?;
        let counts = columns.first_chunk().copied().ok_or_else(malformed)?;
        let cpu = columns.get(CPU_COLUMN).copied().or_else(|| u32::try_from(index).ok()).ok_or_else(malformed)?;
        Ok(Row { cpu, counts })
    };
    text.lines().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formats_of_old_and_new_kernels_are_parsed() {
        let new = "0000ab3f 00000002 0000000a 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                   00000000 00000003 00000000 00000000\n";
        assert_eq!(parse(new), Ok(vec![Row { cpu: 3, counts: [0xab3f, 2, 10] }]));
        let old = "00000001 00000000 00000000 0 0 0 0 0 0 0 0\n00000005 00000000 00000001 0 0 0 0 0 0 0 0\n";
        assert_eq!(parse(old), Ok(vec![Row { cpu: 0, counts: [1, 0, 0] }, Row { cpu: 1, counts: [5, 0, 1] }]));
    }

    #[test]
    fn the_file_of_this_kernel_is_parsed() {
        assert!(!read().expect("the kernel's file").is_empty());
    }

    #[test]
    fn a_malformed_line_is_reported_by_its_number() {
        assert_eq!(parse("1 2 3\n1 2\n"), Err(ParseError { line: 2 }));
        assert_eq!(parse("1 2 packets\n"), Err(ParseError { line: 1 }));
    }

    proptest! {
        #[test]
        fn any_text_is_rows_or_an_error(text in "[0-9a-g \n]{0,200}") {
            if let Ok(rows) = parse(&text) {
                prop_assert_eq!(rows.len(), text.lines().count());
            }
        }
    }
}
