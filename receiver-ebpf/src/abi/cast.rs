//! What stands in the object for kernel functions, whose numbers differ from kernel to kernel: calls of helpers that no kernel
//! has. The loader puts the functions' numbers in their place.

/// For `bpf_cast_to_kern_ctx`, which turns a program's context into the kernel's own type.
pub const CONTEXT: usize = 0x7ff0_0001;
/// For `bpf_rdonly_cast`, which takes a pointer for one to a type, by its number, that can be read and no more.
pub const POINTER: usize = 0x7ff0_0002;
