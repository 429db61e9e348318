//! Constants folded into the programs before they are loaded.
//!
//! A 32-bit global that the loader sets for good is read by two instructions, and programs read many. The verifier knows
//! its value, but leaves both in place; so a move of that value is put there, with nothing after it, and the verifier
//! takes out what does nothing.

use std::collections::{BTreeSet, HashMap};

use object::{
    LittleEndian, SymbolIndex,
    elf::{FileHeader64, SHF_EXECINSTR, SHT_SYMTAB, SectionHeader64},
    pod::bytes_of,
    read::elf::{FileHeader as _, Rel as _, SectionHeader as _, Sym as _},
};

type Header = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;

/// Bytes of an instruction: opcode, registers (the destination's in the low half), a 16-bit offset, a 32-bit immediate.
const INSTRUCTION: usize = 8;
/// `BPF_LD | BPF_DW | BPF_IMM`: room of two instructions, where a global's address comes to stand.
const LOAD_ADDRESS: u8 = 0x18;
/// `BPF_LDX | BPF_MEM | BPF_W`.
const LOAD_WORD: u8 = 0x61;
/// `BPF_ALU | BPF_MOV | BPF_K`: 32 bits, with zeros above.
const MOVE: u8 = 0xb4;
/// `BPF_JMP | BPF_JA`, which goes to the next instruction where its offset is zero.
const JUMP: u8 = 0x05;
/// `BPF_JMP` and `BPF_JMP32`, the classes of jumps, and what of them jumps nowhere: `BPF_CALL`, `BPF_EXIT`.
const JUMPS: [u8; 2] = [0x05, 0x06];
const NO_JUMPS: [u8; 2] = [0x85, 0x95];

/// Folds constants, by their symbols, into an object's programs; how many loads that replaced. A load of another form
/// stays as it is.
///
/// # Errors
/// When the object is no ELF file of little-endian 64-bit words.
pub fn constants(object: &mut [u8], values: &HashMap<&str, u32>) -> Result<usize, object::Error> {
    let edits = edits(object, values)?;
    for (at, bytes) in &edits {
        object[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    Ok(edits.iter().filter(|(_, bytes)| bytes.len() == 3 * INSTRUCTION && bytes[0] == MOVE).count())
}

/// Bytes to write, by where.
type Edits = Vec<(usize, Vec<u8>)>;

fn edits(object: &[u8], values: &HashMap<&str, u32>) -> Result<Edits, object::Error> {
    let header = Header::parse(object)?;
    let sections = header.sections(LittleEndian, object)?;
    let symbols = sections.symbols(LittleEndian, object, SHT_SYMTAB)?;
    let mut edits = Edits::new();
    for (index, table) in sections.iter().enumerate() {
        let Some((relocations, _)) = table.rel(LittleEndian, object)? else { continue };
        let code = sections.section(table.info_link(LittleEndian))?;
        if code.sh_flags(LittleEndian) & u64::from(SHF_EXECINSTR) == 0 {
            continue;
        }
        let programs = code.data(LittleEndian, object)?;
        let (begin, targets) = (code.sh_offset(LittleEndian) as usize, targets(programs));
        // What is folded is no more to be relocated: the table closes up, and its section becomes shorter.
        let mut left = Vec::new();
        for relocation in relocations {
            let symbol = symbols.symbol(SymbolIndex(relocation.r_sym(LittleEndian) as usize))?;
            let name = str::from_utf8(symbol.name(LittleEndian, symbols.strings())?).ok();
            let at = relocation.r_offset(LittleEndian) as usize;
            let value = name.and_then(|name| values.get(name));
            match value.and_then(|value| folded(programs, at, &targets, *value)) {
                Some(bytes) => edits.push((begin + at, bytes)),
                None => left.extend_from_slice(bytes_of(relocation)),
            }
        }
        edits.push((size_of_section(header, index), (left.len() as u64).to_le_bytes().to_vec()));
        edits.push((table.sh_offset(LittleEndian) as usize, left));
    }
    Ok(edits)
}

/// What stands in the place of a global's load that begins at some byte; `None` where that is of another form.
fn folded(programs: &[u8], at: usize, targets: &BTreeSet<usize>, value: u32) -> Option<Vec<u8>> {
    let load = programs.get(at..at + 3 * INSTRUCTION)?;
    let (address, word) = (&load[..INSTRUCTION], &load[2 * INSTRUCTION..]);
    let register = address[1] & 0xf;
    let same = word[1] == register << 4 | register && word[2..INSTRUCTION] == [0; 6];
    // Whoever jumps into the middle has the address from elsewhere.
    let entered = targets.range(at + 1..at + 3 * INSTRUCTION).next().is_some();
    if address[0] != LOAD_ADDRESS || address[4..] != [0; 4] || word[0] != LOAD_WORD || !same || entered {
        return None;
    }
    let mut bytes = vec![0; 3 * INSTRUCTION];
    (bytes[0], bytes[1]) = (MOVE, register);
    bytes[4..INSTRUCTION].copy_from_slice(&value.to_le_bytes());
    (bytes[INSTRUCTION], bytes[2 * INSTRUCTION]) = (JUMP, JUMP);
    Some(bytes)
}

/// The bytes that jumps go to.
fn targets(programs: &[u8]) -> BTreeSet<usize> {
    let jumps = programs.chunks_exact(INSTRUCTION).enumerate();
    let jumps = jumps.filter(|(_, code)| JUMPS.contains(&(code[0] & 0x7)) && !NO_JUMPS.contains(&code[0]));
    let target = |(index, code): (usize, &[u8])| {
        (index + 1).checked_add_signed(i16::from_le_bytes([code[2], code[3]]).into()).map(|index| index * INSTRUCTION)
    };
    jumps.filter_map(target).collect()
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
    use crate::kernel::object::OBJECT;

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
    fn constants_are_folded_and_nothing_else() {
        let mut object = OBJECT.to_vec();
        let folded = constants(&mut object, &HashMap::from([("owner.by", 7)])).expect("an object");
        let before = loads(OBJECT, "owner.by");
        assert!(folded > 20, "{folded} of {before}");
        assert_eq!(loads(&object, "owner.by"), before - folded);
        for other in ["sk_buff.tstamp", "LATENCY", "clock.offset"] {
            assert_eq!(loads(&object, other), loads(OBJECT, other), "{other}");
        }
        let changed = object.chunks(8).zip(OBJECT.chunks(8)).filter(|(one, other)| one != other).count();
        assert!(changed >= 3 * folded, "{changed} words for {folded} loads");
        assert!(constants(&mut b"no object".to_vec(), &HashMap::new()).is_err());
    }

    /// The address of a global in a register, its word in the same or another one, and a jump over some instructions.
    fn program(word: u8, jump: i16) -> Vec<u8> {
        let [low, high] = jump.to_le_bytes();
        let code = [[LOAD_ADDRESS, 3, 0, 0, 0, 0, 0, 0], [0; 8], [LOAD_WORD, word, 0, 0, 0, 0, 0, 0]];
        let end = [[0x15, 3, low, high, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
        [code.as_flattened(), end.as_flattened()].concat()
    }

    #[test]
    fn only_loads_of_the_usual_form_are_folded() {
        let fold = |program: &[u8]| folded(program, 0, &targets(program), 0x0102_0304);
        let usual = fold(&program(0x33, 0)).expect("the usual form");
        assert_eq!(
            usual,
            [[MOVE, 3, 0, 0, 4, 3, 2, 1], [JUMP, 0, 0, 0, 0, 0, 0, 0], [JUMP, 0, 0, 0, 0, 0, 0, 0]].concat()
        );
        assert_eq!(fold(&program(0x33, -4)), Some(usual), "a jump to its beginning");
        assert_eq!(fold(&program(0x34, 0)), None, "the word goes to another register");
        assert_eq!(fold(&program(0x33, -2)), None, "a jump to the word");
        assert_eq!(fold(&program(0x33, 0)[..16]), None, "a program that ends");
    }
}
