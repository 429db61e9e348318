//! The numbers that the loader writes into the instructions of programs: see [`undercurrent_ebpf::abi::constant`].

use std::collections::HashMap;

use undercurrent_ebpf::abi::constant::{CONSTANTS, LOADS, MARK, load, placeholder};

use super::{
    fields::ResolvedField,
    globals::{self, DeclarationError},
    instructions::{self, Instruction},
};

/// `BPF_LD | BPF_IMM | BPF_DW`: a move of 64 bits to a register. It takes two instructions; the second one contains the upper half.
const MOVE: u8 = 0x18;
/// `BPF_LDX | BPF_MEM` with each size.
const LOAD: [u8; 4] = [0x61, 0x69, 0x71, 0x79];

/// The numbers cannot be written: the eBPF object is damaged or foreign.
#[derive(Debug, thiserror::Error)]
pub enum ConstantError {
    /// The declarations cannot be read.
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
    /// The object does not declare a setting.
    #[error("the eBPF object does not declare `{0}`")]
    Undeclared(String),
    /// No declaration has the placeholder of an instruction.
    #[error("an instruction has the placeholder {0:#x}, which no declared number has")]
    Placeholder(i64),
}

impl From<object::Error> for ConstantError {
    fn from(error: object::Error) -> Self {
        DeclarationError::from(error).into()
    }
}

/// The numbers by their placeholders.
pub struct Constants {
    /// Settings, offsets of fields, and masks of bit-fields.
    numbers: HashMap<u64, u32>,
    /// Offsets of fields in load instructions; `None` if the kernel lacks the field.
    offsets: HashMap<i16, Option<i16>>,
}

impl Constants {
    /// Returns the settings that an object declares, with their defaults, and the offsets of fields.
    ///
    /// # Errors
    /// If the object is damaged.
    pub fn new(object: &[u8], fields: &[ResolvedField]) -> Result<Self, DeclarationError> {
        let settings = globals::declared(object, CONSTANTS)?;
        let settings = settings.iter().map(|(symbol, default)| (placeholder(symbol), *default));
        let fields = fields.iter().map(|field| (placeholder(&field.declaration.symbol), field));
        Ok(Self {
            numbers: settings.chain(fields.clone().map(|(placeholder, field)| (placeholder, field.number()))).collect(),
            offsets: fields.map(|(placeholder, field)| (load(placeholder), field.offset())).collect(),
        })
    }

    /// Sets a declared setting.
    ///
    /// # Errors
    /// If the object does not declare it.
    pub fn set(&mut self, symbol: &str, number: u32) -> Result<(), ConstantError> {
        let setting = self.numbers.get_mut(&placeholder(symbol));
        *setting.ok_or_else(|| ConstantError::Undeclared(symbol.to_owned()))? = number;
        Ok(())
    }

    /// Replaces all placeholders in an object.
    ///
    /// # Errors
    /// If the object is not an ELF file, or has an unknown placeholder.
    pub fn write(&self, object: &mut [u8]) -> Result<(), ConstantError> {
        instructions::for_each(object, |instructions| {
            let mut rest = instructions;
            while let [one, after @ ..] = rest {
                match (one[0], after.first_mut()) {
                    (MOVE, Some(upper)) => self.write_number(one, upper)?,
                    (opcode, _) if LOAD.contains(&opcode) => self.write_offset(one)?,
                    _ => {}
                }
                rest = after;
            }
            Ok(())
        })
    }

    /// Replaces the operand of a move if it is a placeholder.
    fn write_number(&self, lower: &mut Instruction, upper: &mut Instruction) -> Result<(), ConstantError> {
        let [.., a, b, c, d] = *lower;
        let [.., e, f, g, h] = *upper;
        if [e, f, g, h] != MARK.to_le_bytes() {
            return Ok(());
        }
        let placeholder = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let number = self.numbers.get(&placeholder).ok_or(ConstantError::Placeholder(placeholder.cast_signed()))?;
        lower[4..].copy_from_slice(&number.to_le_bytes());
        upper[4..].fill(0);
        Ok(())
    }

    /// Replaces the offset of a load if it is the placeholder of a field. If the kernel lacks the field, the placeholder remains: the
    /// verifier rejects the load as a negative access if a program can reach it.
    fn write_offset(&self, load: &mut Instruction) -> Result<(), ConstantError> {
        let [_, _, low, high, ..] = *load;
        let placeholder = i16::from_le_bytes([low, high]);
        if placeholder >= LOADS {
            return Ok(());
        }
        let offset = self.offsets.get(&placeholder).ok_or(ConstantError::Placeholder(placeholder.into()))?;
        if let Some(offset) = offset {
            load[2..4].copy_from_slice(&offset.to_le_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
