//! Placeholders for kernel functions in the object: ids of helpers that do not exist. The id of a kernel function differs between
//! kernels, so the loader replaces the placeholder calls.

/// For `bpf_cast_to_kern_ctx`, which casts a program's context to the kernel's own type.
pub const CONTEXT: usize = 0x7ff0_0001;
/// For `bpf_rdonly_cast`, which casts a pointer to a type, given by its BTF id, for reading.
pub const POINTER: usize = 0x7ff0_0002;
/// For `bpf_dynptr_from_skb`, which gives access to the data of a packet.
pub const PACKET: usize = 0x7ff0_0003;
