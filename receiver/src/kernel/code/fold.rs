//! Constants folded into the programs before they are loaded.
//!
//! A 32-bit global that the loader sets for good is read through its address. The verifier knows its value, but leaves address
//! and load in place; so the value itself is put there, and what it makes needless is taken out ([`super::shorten`]).

use std::collections::HashMap;

use object::{
    LittleEndian, SymbolIndex,
    elf::{FileHeader64, Rel64, SHF_EXECINSTR, SHT_SYMTAB, SectionHeader64},
    pod::bytes_of,
    read::elf::{FileHeader as _, Rel as _, SectionHeader as _, Sym as _},
};

use super::{
    flow::Flow,
    instruction::{Instruction, SIZE},
    shorten::{self, Addresses},
};

type Header = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;
type Relocation = Rel64<LittleEndian>;

/// Folds constants, by their symbols, into an object's programs; how many addresses that took out.
///
/// # Errors
/// When the object is no ELF file of little-endian 64-bit words.
pub fn constants(object: &mut [u8], values: &HashMap<&str, u32>) -> Result<usize, object::Error> {
    let (edits, folded) = edits(object, values)?;
    for (at, bytes) in &edits {
        object[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    Ok(folded)
}

/// Bytes to write, by where.
type Edits = Vec<(usize, Vec<u8>)>;

fn edits(object: &[u8], values: &HashMap<&str, u32>) -> Result<(Edits, usize), object::Error> {
    let header = Header::parse(object)?;
    let sections = header.sections(LittleEndian, object)?;
    let symbols = sections.symbols(LittleEndian, object, SHT_SYMTAB)?;
    let (mut edits, mut folded) = (Edits::new(), 0);
    for (index, table) in sections.iter().enumerate() {
        let Some((relocations, _)) = table.rel(LittleEndian, object)? else { continue };
        let code = sections.section(table.info_link(LittleEndian))?;
        if code.sh_flags(LittleEndian) & u64::from(SHF_EXECINSTR) == 0 {
            continue;
        }
        let Some(mut flow) = Flow::of(code.data(LittleEndian, object)?) else { continue };
        let place = |relocation: &Relocation| relocation.r_offset(LittleEndian) as usize / SIZE;
        let mut addresses = Addresses::new();
        for relocation in relocations {
            let symbol = symbols.symbol(SymbolIndex(relocation.r_sym(LittleEndian) as usize))?;
            let name = str::from_utf8(symbol.name(LittleEndian, symbols.strings())?).ok();
            addresses.insert(place(relocation), name.and_then(|name| values.get(name)).copied());
        }
        shorten::programs(&mut flow, &addresses);
        // What is taken out is no more to be relocated: the table closes up, and its section becomes shorter.
        let stays = |relocation: &&Relocation| flow.instructions[place(relocation)] != Instruction::NOTHING;
        let left: Vec<&[u8]> = relocations.iter().filter(stays).map(bytes_of).collect();
        folded += relocations.len() - left.len();
        let left = left.concat();
        edits.push((code.sh_offset(LittleEndian) as usize, flow.bytes()));
        edits.push((size_of_section(header, index), (left.len() as u64).to_le_bytes().to_vec()));
        edits.push((table.sh_offset(LittleEndian) as usize, left));
    }
    Ok((edits, folded))
}

/// Where an object says how long a section is.
fn size_of_section(header: &Header, index: usize) -> usize {
    let sections = header.e_shoff(LittleEndian) as usize;
    sections + index * size_of::<Section>() + std::mem::offset_of!(Section, sh_size)
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    use super::*;
    use crate::kernel::{
        code::instruction::{CALL, LOAD_ADDRESS},
        object::OBJECT,
    };

    /// How often programs load the address of a symbol.
    fn loads(object: &[u8], symbol: &str) -> usize {
        let file = object::File::parse(object).expect("an object");
        let relocations = file.sections().flat_map(|section| section.relocations().collect::<Vec<_>>());
        let named = |relocation: &object::Relocation| match relocation.target() {
            object::RelocationTarget::Symbol(index) => {
                file.symbol_by_index(index).expect("a symbol").name() == Ok(symbol)
            }
            _ => false,
        };
        relocations.filter(|(_, relocation)| named(relocation)).count()
    }

    #[test]
    fn constants_are_folded_and_no_other_address_goes() {
        let mut object = OBJECT.to_vec();
        let folded = constants(&mut object, &HashMap::from([("owner.by", 7)])).expect("an object");
        let before = loads(OBJECT, "owner.by");
        assert!(folded > 20, "{folded} of {before}");
        assert_eq!(loads(&object, "owner.by"), before - folded);
        for other in ["sk_buff.tstamp", "LATENCY", "clock.offset"] {
            assert_eq!(loads(&object, other), loads(OBJECT, other), "{other}");
        }
        assert!(constants(&mut b"no object".to_vec(), &HashMap::new()).is_err());
    }

    #[test]
    fn what_is_left_of_relocations_is_at_addresses_and_calls() {
        let mut object = OBJECT.to_vec();
        constants(&mut object, &HashMap::from([("owner.by", 0), ("sk_buff.tstamp", 32)])).expect("an object");
        let file = object::File::parse(&*object).expect("an object");
        for section in file.sections().filter(|section| section.kind() == object::SectionKind::Text) {
            let programs = section.data().expect("programs");
            for (at, _) in section.relocations() {
                let opcode = programs[usize::try_from(at).expect("a place")];
                assert!(matches!(opcode, LOAD_ADDRESS | CALL), "{opcode:x} at {at}");
            }
        }
    }
}
