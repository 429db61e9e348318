//! What the running kernel's types say of everything that the object and its programs depend on.

use super::{
    KernelError, LoadOptions,
    btf::{self, Btf, SparseBtf, Target},
    cast::Casts,
    drops::Reasons,
    extra::{self, Named},
    fields::{self, ResolvedField},
    hooks::{Attachment, Hook, Program},
    object,
    task_clock::TaskClock,
};

/// What the kernel's types say.
pub struct Resolved {
    /// Where the object's fields are.
    pub fields: Vec<ResolvedField>,
    /// What attaching needs of them.
    pub types: aya::Btf,
    /// Whether tracing programs may use what is kept with a socket.
    pub socket_storage: bool,
    /// Whether they may take a socket for TCP's.
    pub tcp_sockets: bool,
    /// What gives programs typed pointers.
    pub casts: Casts,
    /// As many as each of [`object::GROWN`] has.
    pub arguments: [usize; object::GROWN.len()],
    /// Why this kernel drops packets.
    pub drop_reasons: Reasons,
    /// Functions that the user names.
    pub extra: Vec<Named>,
    /// The times that the kernel excludes from the run time of tasks.
    pub task_clock: TaskClock,
}

/// The helper of that name for tracing programs, which 5.11 brought.
const TRACING_STORAGE: &str = "bpf_sk_storage_get_tracing";
/// The helper, which 5.9 brought.
const TCP_SOCKET: &str = "bpf_skc_to_tcp_sock";

impl Resolved {
    /// Reads them, and keeps of them what attaching needs.
    ///
    /// # Errors
    /// Where they cannot be read, or the object is damaged.
    pub fn of(request: &LoadOptions<'_>) -> Result<Self, KernelError> {
        let raw = btf::read("vmlinux")?;
        let types = Btf::parse(&raw)?;
        let fields = fields::resolve(&types, &fields::declared(object::OBJECT)?);
        let extra = extra::find(&types, request.functions);
        let functions = extra.iter().map(|named| Target::Function(&named.function));
        let targets: Vec<_> = targets(request.hooks).chain(functions).collect();
        let sparse = types.sparse(&targets);
        let socket_storage = types.function(TRACING_STORAGE).is_some();
        let tcp_sockets = types.function(TCP_SOCKET).is_some();
        let casts = Casts::of(&types);
        let arguments =
            object::GROWN.map(|name| types.tracepoint(name).map_or(0, |tracepoint| tracepoint.parameters.len()));
        let drop_reasons = Reasons::of(&types);
        let task_clock = TaskClock::of(&types);
        drop(types);
        drop(raw);
        let types = into_aya(sparse)?;
        Ok(Self { fields, types, socket_storage, tcp_sockets, casts, arguments, drop_reasons, extra, task_clock })
    }
}

/// What attaching to hooks needs of the kernel's types.
///
/// # Errors
/// Where they cannot be read.
pub fn types_of(hooks: &[&Hook]) -> Result<aya::Btf, KernelError> {
    let raw = btf::read("vmlinux")?;
    let sparse = Btf::parse(&raw)?.sparse(&targets(hooks).collect::<Vec<_>>());
    into_aya(sparse)
}

fn into_aya(sparse: SparseBtf) -> Result<aya::Btf, KernelError> {
    sparse.into_aya().map_err(|error| KernelError::Maps(Box::new(error.into()), Vec::new()))
}

fn targets<'a>(hooks: &'a [&Hook]) -> impl Iterator<Item = Target<'a>> {
    let programs = hooks.iter().flat_map(|hook| hook.alternates).flat_map(|alternate| alternate.programs);
    programs.filter_map(target)
}

fn target<'a>(program: &Program<'a>) -> Option<Target<'a>> {
    match program.attachment {
        Attachment::Fentry | Attachment::Fexit => Some(Target::Function(program.target)),
        Attachment::Tracepoint => Some(Target::Tracepoint(program.target)),
        Attachment::Kprobe | Attachment::Kretprobe | Attachment::CgroupIngress | Attachment::CgroupSocket => None,
    }
}
