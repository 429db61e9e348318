//! The 32-bit globals that a section of the eBPF object declares.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionIndex};

/// An invalid declaration: the eBPF object is damaged or foreign.
#[derive(Debug, thiserror::Error)]
pub enum DeclarationError {
    /// The object is not a readable ELF file.
    #[error("cannot read the eBPF object")]
    Object(#[from] object::Error),
    /// A symbol in the section is invalid.
    #[error("the eBPF object declares {symbol:?} in `{section}`: {what}")]
    Symbol {
        /// The symbol.
        symbol: String,
        /// The section.
        section: &'static str,
        /// The defect.
        what: &'static str,
    },
}

/// Returns the symbols and values of the globals in a section, in the order of their addresses. Empty if the object lacks the section.
///
/// # Errors
/// If the object is no ELF file, or a symbol in the section is no 32-bit global.
pub fn declared(object: &[u8], section: &'static str) -> Result<Vec<(String, u32)>, DeclarationError> {
    let file = object::File::parse(object)?;
    let Some(found) = file.section_by_name(section) else { return Ok(Vec::new()) };
    let data = found.data()?;
    let little = file.is_little_endian();
    let mut globals = Vec::new();
    for symbol in file.symbols().filter(|symbol| is_global_in(symbol, found.index())) {
        let name = symbol.name()?;
        let refused = |what| DeclarationError::Symbol { symbol: name.to_owned(), section, what };
        if symbol.size() != 4 {
            return Err(refused("the size is not four bytes"));
        }
        let value = usize::try_from(symbol.address()).ok().and_then(|at| data.get(at..)?.first_chunk::<4>());
        let value = *value.ok_or(refused("the address is outside of the section"))?;
        let value = if little { u32::from_le_bytes(value) } else { u32::from_be_bytes(value) };
        globals.push((symbol.address(), (name.to_owned(), value)));
    }
    globals.sort_by_key(|(address, _)| *address);
    Ok(globals.into_iter().map(|(_, global)| global).collect())
}

/// Returns true if a symbol names data in the section; the section also has a symbol.
fn is_global_in<'data>(symbol: &impl object::ObjectSymbol<'data>, section: SectionIndex) -> bool {
    symbol.section_index() == Some(section) && symbol.kind() == object::SymbolKind::Data
}
