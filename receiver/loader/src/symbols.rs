//! The kernel's symbols for the functions that the user named.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader},
};

const PATH: &str = "/proc/kallsyms";

/// The symbols of some functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols(HashMap<String, Symbol>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Symbol {
    /// The number of symbols with exactly this name.
    count: usize,
    /// The module of the last symbol; `None` for vmlinux.
    module: Option<String>,
    /// A variant that the compiler generated, with a suffix like `.isra.0` or `.part.0`.
    variant: Option<String>,
}

impl Symbols {
    /// Finds functions among the running kernel's symbols.
    ///
    /// # Errors
    /// If `/proc/kallsyms` cannot be read.
    pub fn read(functions: &[String]) -> io::Result<Self> {
        Self::of(BufReader::new(File::open(PATH)?), functions)
    }

    /// Finds functions in lines of an address, a type, a name and an optional module in brackets.
    pub(super) fn of(mut lines: impl io::BufRead, functions: &[String]) -> io::Result<Self> {
        let mut symbols: HashMap<String, Symbol> =
            functions.iter().map(|function| (function.clone(), Symbol::default())).collect();
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let mut words = line.split_ascii_whitespace().skip(1);
            if let (Some("t" | "T"), Some(name)) = (words.next(), words.next()) {
                let (function, variant) =
                    name.split_once('.').map_or((name, None), |(function, _)| (function, Some(name)));
                match (symbols.get_mut(function), variant) {
                    (Some(symbol), None) => {
                        symbol.count += 1;
                        symbol.module = words.next().map(|module| module.trim_matches(['[', ']']).to_owned());
                    }
                    (Some(symbol), Some(variant)) => symbol.variant = Some(variant.to_owned()),
                    (None, _) => {}
                }
            }
            line.clear();
        }
        Ok(Self(symbols))
    }

    /// Returns the number of symbols with this name.
    #[must_use]
    pub fn count(&self, function: &str) -> usize {
        self.0.get(function).map_or(0, |symbol| symbol.count)
    }

    /// Returns true if the symbols are readable and none has this name.
    #[must_use]
    pub fn lack(&self, function: &str) -> bool {
        self.0.get(function).is_some_and(|symbol| symbol.count == 0)
    }

    /// Returns the module that contains a function.
    #[must_use]
    pub fn module(&self, function: &str) -> Option<&str> {
        self.0.get(function)?.module.as_deref()
    }

    /// Returns a variant of a function that the compiler generated.
    #[must_use]
    pub fn variant(&self, function: &str) -> Option<&str> {
        self.0.get(function)?.variant.as_deref()
    }
}
