//! The names of all functions of the kernel.

use std::{fs, rc::Rc};

use crate::kernel::text::{TextError, functions};

/// The names of functions, by address.
pub struct Names(Vec<(u64, Rc<str>)>);

impl Names {
    /// Reads the running kernel's symbols.
    ///
    /// # Errors
    /// If the kernel hides addresses.
    pub fn read() -> Result<Self, TextError> {
        let text = fs::read_to_string("/proc/kallsyms")?;
        let mut names: Vec<(u64, Rc<str>)> =
            functions(&text).map(|(address, name)| (address, without_suffix(name).into())).collect();
        if names.iter().all(|(address, _)| *address == 0) {
            return Err(TextError::Hidden);
        }
        names.sort_unstable();
        Ok(Self(names))
    }

    /// Returns the name of the function at an address.
    pub fn at(&self, address: u64) -> Rc<str> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        self.0[..after].last().map_or_else(|| "unknown".into(), |(_, name)| Rc::clone(name))
    }
}

/// Returns the name without the suffix of the compiler, for example `.isra.0`.
fn without_suffix(name: &str) -> &str {
    name.split_once('.').map_or(name, |(base, _)| base)
}
