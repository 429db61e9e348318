//! Functions that the user names as layers: lookup in the running kernel's BTF, and position of the packet argument.

use undercurrent_ebpf::abi::extra::{ARGUMENTS, LAYERS};

use undercurrent_kernel::{
    hooks::{Alternate, Attachment, KPROBE, Program},
    plan::Outcome,
    refusal::Refusal,
};

use super::{
    btf::{self, Btf, Function},
    plan::{self, Attach},
    registers::REGISTERS,
    symbols::Symbols,
};
use crate::options::nearest::nearest;

/// The struct of a packet; a layer's function must have a pointer to it as an argument.
const PACKET: &str = "sk_buff";
/// The struct of a socket; a socket argument attributes the packet to a workload.
const SOCKET: &str = "sock";
/// Bytes of a word that holds an argument.
const WORD: u64 = 8;

/// A function that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of the function.
    pub function: String,
    /// The positions of the arguments, or the reason why the function can be no layer.
    pub found: Result<Place, Absence>,
}

/// The positions of the arguments that programs read, counted from zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position of the first packet.
    pub packet: u32,
    /// The position of the first socket, if the function takes one.
    pub socket: Option<u32>,
    /// The module that contains the function; `None` for vmlinux.
    pub module: Option<String>,
}

/// The reason why a function can be no layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// Neither the kernel nor a module has a function of that name.
    #[error("this kernel's BTF has no function of that name{}", .nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)")))]
    Unknown {
        /// The most similar function that takes a packet.
        nearest: Option<String>,
    },
    /// The function exists, but no BTF describes its arguments.
    #[error("no BTF describes its arguments: {}", .module.as_ref().map_or_else(|| "the kernel's BTF omits it".to_owned(), |module| format!("the BTF of module `{module}` is missing or omits it")))]
    Untyped {
        /// The module that contains the function; `None` for vmlinux.
        module: Option<String>,
    },
    /// The compiler inlined or renamed the function.
    #[error("this kernel has no code of that name: the compiler {}", .variant.as_ref().map_or_else(|| "inlined it".to_owned(), |name| format!("replaced it by `{name}`")))]
    NoCode {
        /// A variant that the compiler generated.
        variant: Option<String>,
    },
    /// Several functions have the name.
    #[error("this kernel has {0} functions of that name, and a program would attach to only one of them")]
    Several(usize),
    /// The function takes no packet.
    #[error("no argument of the function is a `struct sk_buff *`")]
    NoPacket,
    /// Programs cannot read the argument that holds the packet.
    #[error("programs cannot read the packet argument: it follows {} argument registers, or a struct", ARGUMENTS)]
    OutOfReach,
}

impl Absence {
    const fn cure(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => {
                "name a function of this kernel: /proc/kallsyms lists functions, and `bpftool btf dump file \
                 /sys/kernel/btf/vmlinux` lists arguments"
            }
            Self::NoPacket | Self::OutOfReach => "name a function with a packet among its first arguments",
            Self::Untyped { .. } | Self::NoCode { .. } | Self::Several(_) => "name one of its callers or callees",
        }
    }
}

/// Finds functions in the kernel; each missing function has a reason.
#[must_use]
pub fn find(kernel: &Btf<'_>, functions: &[String]) -> Vec<Named> {
    if functions.is_empty() {
        return Vec::new();
    }
    let symbols = Symbols::read(functions)
        .inspect_err(|error| tracing::warn!("cannot detect functions that share a name: /proc/kallsyms: {error}"))
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

/// Finds a function in the BTF of its module; /proc/kallsyms names the module.
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

/// Returns the positions of the first packet and the first socket among the arguments.
fn place(function: &Function<'_>, module: Option<String>) -> Result<Place, Absence> {
    let of = |name| function.parameters.iter().position(|parameter| parameter.points_to == Some(name));
    let packet = of(PACKET).ok_or(Absence::NoPacket)?;
    // An argument's position equals its register only if each earlier argument fits in one word.
    let reached = |number: usize| {
        let small = function.parameters[..number].iter().all(|one| one.size.is_some_and(|size| size <= WORD));
        u32::try_from(number).ok().filter(|number| small && *number < ARGUMENTS)
    };
    let packet = reached(packet).ok_or(Absence::OutOfReach)?;
    Ok(Place { packet, socket: of(SOCKET).and_then(reached), module })
}

/// The fentry and the kprobe program of each layer.
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

/// The limitation of a kprobe on a function that takes a socket.
const NO_SOCKET: &str = "the socket of a packet; packets are attributed to their network namespace";

/// Attaches to a function as the layer with this number.
pub fn serve(kernel: &mut impl Attach, number: usize, named: &Named) -> Outcome {
    let [entry, probe] = PROGRAMS[number];
    let target = named.function.as_str();
    let fentry = [Program { symbol: entry, attachment: Attachment::Fentry, target }];
    let kprobe = [Program { symbol: probe, attachment: Attachment::Kprobe, target }];
    let mut alternates = Vec::new();
    if let Ok(place) = &named.found {
        // aya cannot pass a module's BTF when it loads a program.
        if place.module.is_none() {
            alternates.push(Alternate {
                name: "fentry",
                programs: &fentry,
                leaves_out: None,
                beside: None,
                needs_all: false,
            });
        }
        if REGISTERS.is_some() {
            let leaves_out = place.socket.map(|_| NO_SOCKET);
            alternates.push(Alternate { name: KPROBE, programs: &kprobe, leaves_out, beside: None, needs_all: false });
        }
    }
    let mut outcome = plan::serve_alternates(kernel, named.function.clone().into(), &alternates);
    if let Err(absence) = &named.found {
        outcome.refusals.push(Refusal::new(named.function.clone(), absence.to_string(), absence.cure()));
    }
    // The user named the function, not the program.
    outcome.refusals.iter_mut().for_each(|refusal| refusal.program = named.function.clone().into());
    outcome
}

#[cfg(test)]
mod tests;
