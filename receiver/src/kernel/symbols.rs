//! The kernel's symbols, as far as they say which code a function's name leads to.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader},
};

const PATH: &str = "/proc/kallsyms";

/// What the kernel has of some functions' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols(HashMap<String, Symbol>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Symbol {
    /// Pieces of code of that very name.
    count: usize,
    /// The module of the last of them, where it is not the kernel's own.
    module: Option<String>,
    /// A piece of code that the compiler derived, named with a dot and what it did: `.isra.0`, `.part.0`.
    variant: Option<String>,
}

impl Symbols {
    /// Looks for functions among the running kernel's symbols.
    ///
    /// # Errors
    /// Where `/proc/kallsyms` cannot be read.
    pub fn read(functions: &[String]) -> io::Result<Self> {
        Self::of(BufReader::new(File::open(PATH)?), functions)
    }

    /// The same among lines of an address, a type, a name and, in brackets, a module.
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

    /// How many pieces of code have a name.
    #[must_use]
    pub fn count(&self, function: &str) -> usize {
        self.0.get(function).map_or(0, |symbol| symbol.count)
    }

    /// Whether none has, although others' names are known.
    #[must_use]
    pub fn lack(&self, function: &str) -> bool {
        self.0.get(function).is_some_and(|symbol| symbol.count == 0)
    }

    /// The module that has a function.
    #[must_use]
    pub fn module(&self, function: &str) -> Option<&str> {
        self.0.get(function)?.module.as_deref()
    }

    /// What the compiler made of a function.
    #[must_use]
    pub fn variant(&self, function: &str) -> Option<&str> {
        self.0.get(function)?.variant.as_deref()
    }
}
