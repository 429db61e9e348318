//! Resolution of all dependencies of the eBPF object in the running kernel's BTF.

use undercurrent_kernel::{
    LoadOptions,
    drops::Reasons,
    hooks::{Attachment, Hook, Program},
    task_clock::TaskClock,
};

use super::{
    LoadError,
    btf::{self, Btf, SparseBtf, Target},
    cast::Casts,
    drops,
    extra::{self, Named},
    fields::{self, ResolvedField},
    object, task_clock,
};

/// The dependencies, resolved in the kernel's BTF.
pub struct Resolved {
    /// The fields that programs read.
    pub fields: Vec<ResolvedField>,
    /// The part of the BTF that attaching needs.
    pub types: aya::Btf,
    /// True if tracing programs may use socket storage.
    pub socket_storage: bool,
    /// True if tracing programs may cast a socket to a TCP socket.
    pub tcp_sockets: bool,
    /// True if tracing programs may read the user registers of a task.
    pub task_registers: bool,
    /// The kernel functions that give programs typed pointers.
    pub casts: Casts,
    /// The number of arguments of each tracepoint in [`object::GROWN`].
    pub arguments: [usize; object::GROWN.len()],
    /// The kernel's drop reasons.
    pub drop_reasons: Reasons,
    /// The functions that the user named.
    pub extra: Vec<Named>,
    /// The times that the kernel excludes from the run time of tasks.
    pub task_clock: TaskClock,
}

/// The prototype of `bpf_sk_storage_get` for tracing programs (5.11 and later).
const TRACING_STORAGE: &str = "bpf_sk_storage_get_tracing";
/// The helper `bpf_task_pt_regs` (5.15 and later).
const TASK_REGISTERS: &str = "bpf_task_pt_regs";
/// The helper `bpf_skc_to_tcp_sock` (5.9 and later).
const TCP_SOCKET: &str = "bpf_skc_to_tcp_sock";

impl Resolved {
    /// Reads the kernel's BTF and keeps only the part that attaching needs.
    ///
    /// # Errors
    /// If the BTF cannot be read, or the object is damaged.
    pub fn of(request: &LoadOptions<'_>) -> Result<Self, LoadError> {
        let raw = btf::read("vmlinux")?;
        let types = Btf::parse(&raw)?;
        let fields = fields::resolve(&types, &fields::declared(object::OBJECT)?);
        let extra = extra::find(&types, request.functions);
        let functions = extra.iter().map(|named| Target::Function(&named.function));
        let targets: Vec<_> = targets(request.hooks).chain(functions).collect();
        let sparse = types.sparse(&targets);
        let socket_storage = types.function(TRACING_STORAGE).is_some();
        let tcp_sockets = types.function(TCP_SOCKET).is_some();
        let task_registers = types.function(TASK_REGISTERS).is_some();
        let casts = Casts::of(&types);
        let arguments =
            object::GROWN.map(|name| types.tracepoint(name).map_or(0, |tracepoint| tracepoint.parameters.len()));
        let drop_reasons = drops::reasons(&types);
        let task_clock = task_clock::task_clock(&types);
        drop(types);
        drop(raw);
        let types = into_aya(sparse)?;
        Ok(Self {
            fields,
            types,
            socket_storage,
            tcp_sockets,
            task_registers,
            casts,
            arguments,
            drop_reasons,
            extra,
            task_clock,
        })
    }
}

/// Returns the part of the kernel's BTF that attaching hooks needs.
///
/// # Errors
/// If the BTF cannot be read.
pub fn types_of(hooks: &[&Hook]) -> Result<aya::Btf, LoadError> {
    let raw = btf::read("vmlinux")?;
    let sparse = Btf::parse(&raw)?.sparse(&targets(hooks).collect::<Vec<_>>());
    into_aya(sparse)
}

fn into_aya(sparse: SparseBtf) -> Result<aya::Btf, LoadError> {
    sparse.into_aya().map_err(|error| LoadError::Maps(Box::new(error.into()), Vec::new()))
}

fn targets<'a>(hooks: &'a [&Hook]) -> impl Iterator<Item = Target<'a>> {
    let programs = hooks.iter().flat_map(|hook| hook.alternates).flat_map(|alternate| alternate.programs);
    programs.filter_map(target)
}

fn target<'a>(program: &Program<'a>) -> Option<Target<'a>> {
    match program.attachment {
        Attachment::Fentry | Attachment::Fexit => Some(Target::Function(program.target)),
        Attachment::Tracepoint => Some(Target::Tracepoint(program.target)),
        Attachment::Kprobe
        | Attachment::Kretprobe
        | Attachment::CgroupIngress
        | Attachment::CgroupSocket
        | Attachment::CgroupRead
        | Attachment::CpuEvent(_) => None,
    }
}
