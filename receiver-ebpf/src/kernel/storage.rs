//! Socket storage: one value per socket and map.

use core::{ffi::c_void, ptr::null_mut};

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_F_NO_PREALLOC, BPF_SK_STORAGE_GET_F_CREATE, bpf_map_type::BPF_MAP_TYPE_SK_STORAGE, bpf_sock},
    helpers::generated::bpf_sk_storage_get,
    programs::SockContext,
};

use super::{fields::Sock, pointer::Ptr};

/// `BPF_F_CLONE` of `include/uapi/linux/bpf.h`: accepted connections inherit the word of their listening socket.
const CLONE: usize = 1 << 9;

/// A socket that [`SocketStorage`] accepts. The verifier checks that the pointer is a trusted socket.
pub trait StorageOwner: Copy {
    /// Returns the pointer for the helper.
    fn raw(self) -> *mut c_void;
}

impl StorageOwner for Ptr<Sock> {
    #[inline(always)]
    fn raw(self) -> *mut c_void {
        Ptr::raw(self).cast_mut().cast()
    }
}

impl StorageOwner for *const bpf_sock {
    #[inline(always)]
    fn raw(self) -> *mut c_void {
        self.cast_mut().cast()
    }
}

impl StorageOwner for &SockContext {
    #[inline(always)]
    fn raw(self) -> *mut c_void {
        self.as_ptr()
    }
}

/// A map with a value for each socket. The kernel requires key and value types in BTF, so the definition consists of types.
#[repr(C)]
pub struct SocketStorage<V, const FLAGS: usize> {
    r#type: *const [i32; BPF_MAP_TYPE_SK_STORAGE as usize],
    key: *const i32,
    value: *const V,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; FLAGS],
}

/// A value that accepted connections do not inherit.
pub type OwnValue<V> = SocketStorage<V, { BPF_F_NO_PREALLOC as usize }>;

/// One word for each socket.
pub type SocketWord = SocketStorage<u64, { BPF_F_NO_PREALLOC as usize | CLONE }>;

// SAFETY: the loader replaces the static by a map; no code dereferences the pointers.
unsafe impl<V, const FLAGS: usize> Sync for SocketStorage<V, FLAGS> {}

impl<V, const FLAGS: usize> SocketStorage<V, FLAGS> {
    pub const fn declared() -> Self {
        use core::ptr::null;
        Self { r#type: null(), key: null(), value: null(), max_entries: null(), map_flags: null() }
    }

    /// Returns a socket's value, or null.
    #[inline(always)]
    pub fn value(&'static self, sock: impl StorageOwner) -> *mut V {
        self.storage(sock, null_mut(), 0)
    }

    /// Returns a socket's value, which is `initial` if it is new; null if the kernel refuses the storage.
    #[inline(always)]
    pub fn value_or(&'static self, sock: impl StorageOwner, initial: &mut V) -> *mut V {
        self.storage(sock, initial, BPF_SK_STORAGE_GET_F_CREATE.into())
    }

    #[inline(always)]
    fn storage(&'static self, sock: impl StorageOwner, initial: *mut V, flags: u64) -> *mut V {
        let map = (&raw const *self).cast_mut().cast();
        // SAFETY: the verifier checks map and socket; `initial` is null or a value on the stack.
        unsafe { bpf_sk_storage_get(map, sock.raw(), initial.cast(), flags) }.cast()
    }
}

impl SocketWord {
    /// Returns a socket's word; `None` if it is unset or zero.
    #[inline(always)]
    pub fn get(&'static self, sock: impl StorageOwner) -> Option<u64> {
        let word = self.value(sock);
        // SAFETY: storage of the socket, checked for null.
        if word.is_null() { None } else { Some(unsafe { *word }).filter(|word| *word != 0) }
    }

    /// Sets a socket's word and returns true if the value changed; `None` if the kernel refuses the storage.
    #[inline(always)]
    pub fn set(&'static self, sock: impl StorageOwner, value: u64) -> Option<bool> {
        // No cgroup has the id zero, so a new word counts as changed.
        let word = self.value_or(sock, &mut 0);
        if word.is_null() {
            return None;
        }
        // SAFETY: storage of the socket, checked for null.
        let changed = unsafe { *word } != value;
        if changed {
            // SAFETY: storage of the socket. Readers on other CPUs see the old word or the new one.
            unsafe { word.write_volatile(value) };
        }
        Some(changed)
    }
}
