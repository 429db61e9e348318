//! Contexts of programs: typed arguments, and the packet of a `cgroup_skb` program.

use aya_ebpf::{
    EbpfContext,
    bindings::{__sk_buff, bpf_sock},
    helpers::{bpf_get_socket_cookie, bpf_sk_fullsock, bpf_skb_cgroup_id},
    programs::{BtfTracePointContext, FEntryContext, FExitContext, SkBuffContext},
};
use undercurrent_ebpf::abi::cast::CONTEXT;

use super::{
    constant::constants,
    fields::{SKB_SK, SkBuff, Sock},
    pointer::Ptr,
};

/// A context of words: the arguments of a function or tracepoint, then at the exit of a function its return value.
pub trait Arguments: EbpfContext {
    /// Returns a word. The verifier rejects the program if the function has fewer.
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        // SAFETY: the verifier checks the load against the function's arguments.
        unsafe { *self.as_ptr().cast::<u64>().add(index) }
    }

    /// Returns a pointer argument. The verifier checks loads through it against the argument's type.
    #[inline(always)]
    fn pointer<T>(&self, index: usize) -> Ptr<T> {
        // SAFETY: the verifier checks the load, and gives the pointer the type of the argument.
        unsafe { Ptr::typed(*self.as_ptr().cast::<*const T>().add(index)) }
    }
}

impl Arguments for BtfTracePointContext {}
impl Arguments for FEntryContext {}
impl Arguments for FExitContext {}

constants! {
    /// 1 if a program can cast its context to the kernel's own packet (6.2 and later).
    CASTS = "owner.cast";
}

/// The packet of a `cgroup_skb` program. Its data begins at the IP header.
#[derive(Clone, Copy)]
pub struct SkbContext(*const __sk_buff);

/// Reads a field of the context.
macro_rules! context_field {
    ($context:expr, $($field:ident).+) => {
        // SAFETY: the context of the running program; the verifier rewrites the load.
        unsafe { (*$context.0).$($field).+ }
    };
}

impl SkbContext {
    #[inline(always)]
    pub fn of(ctx: &SkBuffContext) -> Self {
        Self(ctx.as_ptr().cast_const().cast())
    }

    /// Wraps the context of the running program, for global functions.
    #[inline(always)]
    pub const fn at(context: *const __sk_buff) -> Self {
        Self(context)
    }

    /// Returns the context for a global function.
    #[inline(always)]
    pub const fn raw(self) -> *const __sk_buff {
        self.0
    }

    /// Returns the timestamp in nanoseconds of the wall clock, or zero.
    #[inline(always)]
    pub fn timestamp(self) -> u64 {
        context_field!(self, tstamp)
    }

    /// Returns the Ethertype, in network order.
    #[inline(always)]
    pub fn protocol(self) -> u16 {
        context_field!(self, protocol) as u16
    }

    /// Returns the segments of a packet that GRO or a sender on this host combined; zero for a single segment.
    #[inline(always)]
    pub fn segments(self) -> u32 {
        context_field!(self, gso_segs)
    }

    /// Returns the length in bytes, from the IP header on.
    #[inline(always)]
    pub fn length(self) -> u32 {
        context_field!(self, len)
    }

    /// Returns the index of the interface.
    #[inline(always)]
    pub fn interface(self) -> u32 {
        context_field!(self, ifindex)
    }

    /// Returns the first `LENGTH` bytes; `None` if the linear data is shorter.
    #[inline(always)]
    pub fn bytes<const LENGTH: usize>(self) -> Option<&'static [u8; LENGTH]> {
        let (data, end) = (context_field!(self, data) as usize, context_field!(self, data_end) as usize);
        // SAFETY: compared with the end of the data, which the verifier checks too.
        if data + LENGTH > end { None } else { Some(unsafe { &*(data as *const [u8; LENGTH]) }) }
    }

    /// Returns the receiving socket, if there is one.
    #[inline(always)]
    pub fn socket(self) -> Option<*const bpf_sock> {
        let socket = context_field!(self, __bindgen_anon_2.sk);
        if socket.is_null() { None } else { Some(socket) }
    }

    /// Returns the protocol of the receiving socket; `None` if there is no full socket.
    #[inline(always)]
    pub fn socket_protocol(self) -> Option<u32> {
        // SAFETY: the helper takes a socket that is not null.
        let socket = unsafe { bpf_sk_fullsock(self.socket()?.cast_mut()) };
        // SAFETY: the result of the helper, checked for null.
        if socket.is_null() { None } else { Some(unsafe { (*socket).protocol }) }
    }

    /// Returns the cookie of the receiving socket. The helper creates a missing cookie.
    #[inline(always)]
    pub fn create_cookie(self) -> u64 {
        // SAFETY: the helper takes the context.
        unsafe { bpf_get_socket_cookie(self.0.cast_mut().cast()) }
    }

    /// Returns the id of the cgroup that created the receiving socket.
    #[inline(always)]
    pub fn cgroup_id(self) -> u64 {
        // SAFETY: the helper takes the context.
        unsafe { bpf_skb_cgroup_id(self.0.cast_mut()) }
    }

    /// Returns the kernel's own packet; `None` if the kernel cannot cast the context.
    #[inline(always)]
    pub fn packet(self) -> Option<Ptr<SkBuff>> {
        if CASTS.get() == 0 {
            return None;
        }
        // SAFETY: the loader replaces the address by `bpf_cast_to_kern_ctx`, which has this signature.
        let cast: unsafe extern "C" fn(*const __sk_buff) -> *const SkBuff = unsafe { core::mem::transmute(CONTEXT) };
        // SAFETY: the function takes the context and returns a typed `sk_buff`.
        Some(unsafe { Ptr::typed(cast(self.0)) })
    }

    /// Returns the receiving socket with its kernel type; `None` if there is none, or if the kernel cannot cast the context.
    #[inline(always)]
    pub fn kernel_socket(self) -> Option<Ptr<Sock>> {
        self.packet()?.follow(&SKB_SK).non_null()
    }
}
