//! Functions that the user names as layers: where the running kernel has them, and where they have their packet.

use std::fs;

use undercurrent_ebpf::abi::extra::{LAYERS, WORDS};

use super::{
    btf::{self, Btf, Function, VMLINUX},
    hooks::{Alternate, Attachment, Program},
    plan::{self, Attach, Outcome},
    refusal::Refusal,
    symbols::Symbols,
};
use crate::config::nearest::nearest;

/// What functions are looked for by: they take a packet.
const PACKET: &str = "sk_buff";
/// Where one of these is an argument too, it says whose the packet is.
const SOCKET: &str = "sock";
/// Bytes of a word that holds an argument.
const WORD: u64 = 8;

/// A function that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub function: String,
    /// What the kernel has of that name.
    pub found: Result<Place, Absence>,
}

/// Where a function has what programs read, by the numbers of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first packet.
    pub packet: u32,
    /// The first socket, where it has one.
    pub socket: Option<u32>,
}

/// Why a function can be no layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// Nothing has that name.
    #[error("this kernel's types have no function of that name{}", .nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)")))]
    Unknown {
        /// The most similar function that takes a packet.
        nearest: Option<String>,
    },
    /// A module has it.
    #[error("it belongs to the module `{0}`, and programs attach to the kernel's own functions alone")]
    Module(String),
    /// The compiler left nothing of that name.
    #[error("it has no code of that name: the compiler {}", .variant.as_ref().map_or_else(|| "inlined it".to_owned(), |name| format!("made `{name}` of it")))]
    NoCode {
        /// A variant that it left.
        variant: Option<String>,
    },
    /// More than one has it.
    #[error("this kernel has {0} functions of that name, and a program would see one of them")]
    Several(usize),
    /// It takes no packet.
    #[error("it takes no packet: none of its arguments is a `struct sk_buff *`")]
    NoPacket,
    /// It takes its packet where programs do not look.
    #[error("its packet is where programs cannot get it: after {} registers of arguments, or after a struct", WORDS)]
    OutOfReach,
}

impl Absence {
    const fn cure(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => {
                "name one that this kernel has: /proc/kallsyms lists them, `bpftool btf dump file /sys/kernel/btf/vmlinux` \
                 with their arguments"
            }
            Self::NoPacket | Self::OutOfReach => "name one that has a packet among its first arguments",
            Self::Module(_) | Self::NoCode { .. } | Self::Several(_) => "name one that calls it, or that it calls",
        }
    }
}

/// Looks for functions in the kernel, and says of those that are not there why.
#[must_use]
pub fn find(kernel: &Btf<'_>, functions: &[String]) -> Vec<Named> {
    if functions.is_empty() {
        return Vec::new();
    }
    let symbols = Symbols::read(functions)
        .inspect_err(|error| tracing::warn!("cannot tell functions that share a name: /proc/kallsyms: {error}"))
        .unwrap_or_default();
    let found = |function: &String| find_one(kernel, function, &symbols);
    functions.iter().map(|function| Named { function: function.clone(), found: found(function) }).collect()
}

fn find_one(kernel: &Btf<'_>, name: &str, symbols: &Symbols) -> Result<Place, Absence> {
    let several = kernel.functions(name).count().max(symbols.count(name));
    let Some(function) = kernel.function(name) else {
        return Err(module_of(kernel, name).map_or_else(|| unknown(kernel, name), Absence::Module));
    };
    let place = place(&function)?;
    match several {
        _ if symbols.lack(name) => Err(Absence::NoCode { variant: symbols.variant(name).map(str::to_owned) }),
        0 | 1 => Ok(place),
        several => Err(Absence::Several(several)),
    }
}

fn unknown(kernel: &Btf<'_>, name: &str) -> Absence {
    let known: Vec<&str> = kernel.takers(PACKET).collect();
    Absence::Unknown { nearest: nearest(name, &known).map(str::to_owned) }
}

/// The loaded module that has a function of that name.
fn module_of(kernel: &Btf<'_>, name: &str) -> Option<String> {
    let modules = fs::read_dir("/sys/kernel/btf").ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    modules.filter(|module| module != VMLINUX).find(|module| {
        let Ok(raw) = btf::read(module) else { return false };
        Btf::parse_module(&raw, kernel).is_ok_and(|types| types.function(name).is_some())
    })
}

/// Where a function has its packet and its socket: the first of each.
fn place(function: &Function<'_>) -> Result<Place, Absence> {
    let of = |name| function.parameters.iter().position(|parameter| parameter.points_to == Some(name));
    let packet = of(PACKET).ok_or(Absence::NoPacket)?;
    // Arguments have a word each as long as none is larger than one.
    let reached = |number: usize| {
        let small = function.parameters[..number].iter().all(|one| one.size.is_some_and(|size| size <= WORD));
        u32::try_from(number).ok().filter(|number| small && *number < WORDS)
    };
    let packet = reached(packet).ok_or(Absence::OutOfReach)?;
    Ok(Place { packet, socket: of(SOCKET).and_then(reached) })
}

/// The programs, by the number of the layer.
const PROGRAMS: [&str; LAYERS] =
    ["extra_0", "extra_1", "extra_2", "extra_3", "extra_4", "extra_5", "extra_6", "extra_7"];

/// Attaches to a function, as the layer of that number.
pub fn serve(kernel: &mut impl Attach, number: usize, named: &Named) -> Outcome {
    let programs = match &named.found {
        Ok(_) => vec![Program { symbol: PROGRAMS[number], attachment: Attachment::Fentry, target: &named.function }],
        Err(_) => Vec::new(),
    };
    let fentry = Alternate { name: "fentry", programs: &programs, leaves_out: None };
    let alternates = if programs.is_empty() { &[][..] } else { &[fentry] };
    let mut outcome = plan::serve_by(kernel, named.function.clone().into(), alternates);
    if let Err(absence) = &named.found {
        let program = named.function.clone().into();
        outcome.refusals.push(Refusal { program, what: absence.to_string(), cure: absence.cure().to_owned() });
    }
    // People know the function, and not which of the programs it got.
    outcome.refusals.iter_mut().for_each(|refusal| refusal.program = named.function.clone().into());
    outcome
}

#[cfg(test)]
mod tests;
