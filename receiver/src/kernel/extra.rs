//! Functions that the user names as layers: where the running kernel has them, and where they have their packet.

use undercurrent_ebpf::abi::extra::{ARGUMENTS, LAYERS};

use super::{
    btf::{self, Btf, Function},
    hooks::{Alternate, Attachment, KPROBE, Program},
    plan::{self, Attach, Outcome},
    refusal::Refusal,
    registers::REGISTERS,
    symbols::Symbols,
};
use crate::options::nearest::nearest;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first packet.
    pub packet: u32,
    /// The first socket, where it has one.
    pub socket: Option<u32>,
    /// The module that the function belongs to, where it is not the kernel's own.
    pub module: Option<String>,
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
    /// It is there, but nothing says what its arguments are.
    #[error("no types say what its arguments are: {}", .module.as_ref().map_or_else(|| "the kernel's leave it out".to_owned(), |module| format!("the module `{module}` has none")))]
    Untyped {
        /// The module that has it, where it is not the kernel's own.
        module: Option<String>,
    },
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
    #[error(
        "its packet is where programs cannot get it: after {} registers of arguments, or after a struct",
        ARGUMENTS
    )]
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
            Self::Untyped { .. } | Self::NoCode { .. } | Self::Several(_) => "name one that calls it, or that it calls",
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
    let place = match kernel.function(name) {
        Some(function) => place(&function, None)?,
        None => in_module(kernel, name, symbols)?,
    };
    match kernel.functions(name).count().max(symbols.count(name)) {
        _ if symbols.lack(name) => Err(Absence::NoCode { variant: symbols.variant(name).map(str::to_owned) }),
        0 | 1 => Ok(place),
        several => Err(Absence::Several(several)),
    }
}

/// Looks in the module that has a function, by the kernel's symbols.
fn in_module(kernel: &Btf<'_>, name: &str, symbols: &Symbols) -> Result<Place, Absence> {
    if symbols.count(name) == 0 {
        let known: Vec<&str> = kernel.takers(PACKET).collect();
        return Err(Absence::Unknown { nearest: nearest(name, &known).map(str::to_owned) });
    }
    let module = symbols.module(name).map(str::to_owned);
    let raw = module.as_deref().and_then(|module| btf::read(module).ok());
    let types = raw.as_deref().and_then(|raw| Btf::parse_module(raw, kernel).ok());
    let function = types.as_ref().and_then(|types| types.function(name));
    function.map_or(Err(Absence::Untyped { module: module.clone() }), |function| place(&function, module))
}

/// Where a function has its packet and its socket: the first of each.
fn place(function: &Function<'_>, module: Option<String>) -> Result<Place, Absence> {
    let of = |name| function.parameters.iter().position(|parameter| parameter.points_to == Some(name));
    let packet = of(PACKET).ok_or(Absence::NoPacket)?;
    // Arguments have a word each as long as none is larger than one.
    let reached = |number: usize| {
        let small = function.parameters[..number].iter().all(|one| one.size.is_some_and(|size| size <= WORD));
        u32::try_from(number).ok().filter(|number| small && *number < ARGUMENTS)
    };
    let packet = reached(packet).ok_or(Absence::OutOfReach)?;
    Ok(Place { packet, socket: of(SOCKET).and_then(reached), module })
}

/// The programs, by the number of the layer: on fentry and on kprobes.
const PROGRAMS: [[&str; 2]; LAYERS] = [
    ["extra_0", "extra_0_probe"],
    ["extra_1", "extra_1_probe"],
    ["extra_2", "extra_2_probe"],
    ["extra_3", "extra_3_probe"],
    ["extra_4", "extra_4_probe"],
    ["extra_5", "extra_5_probe"],
    ["extra_6", "extra_6_probe"],
    ["extra_7", "extra_7_probe"],
];

/// What a kprobe does not see of a function that takes a socket.
const NO_SOCKET: &str = "whose socket a packet is for, and counts it for its network namespace";

/// Attaches to a function, as the layer of that number.
pub fn serve(kernel: &mut impl Attach, number: usize, named: &Named) -> Outcome {
    let [entry, probe] = PROGRAMS[number];
    let target = named.function.as_str();
    let fentry = [Program { symbol: entry, attachment: Attachment::Fentry, target }];
    let kprobe = [Program { symbol: probe, attachment: Attachment::Kprobe, target }];
    let mut alternates = Vec::new();
    if let Ok(place) = &named.found {
        // aya cannot name a module's types when it loads a program.
        if place.module.is_none() {
            alternates.push(Alternate { name: "fentry", programs: &fentry, leaves_out: None });
        }
        if REGISTERS.is_some() {
            let leaves_out = place.socket.map(|_| NO_SOCKET);
            alternates.push(Alternate { name: KPROBE, programs: &kprobe, leaves_out });
        }
    }
    let mut outcome = plan::serve_by(kernel, named.function.clone().into(), &alternates);
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
