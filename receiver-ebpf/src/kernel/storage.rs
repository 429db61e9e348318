//! Words kept with a socket.

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_SK_STORAGE_GET_F_CREATE, bpf_map_type::BPF_MAP_TYPE_SK_STORAGE},
    helpers::generated::bpf_sk_storage_get,
};

/// Children of a listening socket begin with its word (`BPF_F_CLONE` of `include/uapi/linux/bpf.h`).
const CLONE: usize = 1 << 9;

/// A map of sockets' words. The kernel wants its types in BTF, so that its definition is types alone.
#[repr(C)]
pub struct SocketWord {
    r#type: *const [i32; BPF_MAP_TYPE_SK_STORAGE as usize],
    key: *const i32,
    value: *const u64,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize | CLONE],
}

// SAFETY: the loader puts a map in its place; nothing behind the pointers is ever read.
unsafe impl Sync for SocketWord {}

impl SocketWord {
    pub const fn declared() -> Self {
        use core::ptr::null;
        Self { r#type: null(), key: null(), value: null(), max_entries: null(), map_flags: null() }
    }

    /// A socket's word, where it has one.
    ///
    /// # Safety
    /// `sock` is a socket that the verifier knows as such.
    #[inline(always)]
    pub unsafe fn get(&'static self, sock: *const u8) -> Option<u64> {
        // SAFETY: by the caller.
        let word = unsafe { bpf_sk_storage_get(self.map(), sock.cast_mut().cast(), core::ptr::null_mut(), 0) };
        let word = word.cast::<u64>();
        // SAFETY: the pointer was checked for null.
        if word.is_null() { None } else { Some(unsafe { *word }).filter(|word| *word != 0) }
    }

    /// Sets a socket's word; whether it was another one. `None` where the kernel gives no room.
    ///
    /// # Safety
    /// As for [`Self::get`].
    #[inline(always)]
    pub unsafe fn set(&'static self, sock: *const u8, value: u64) -> Option<bool> {
        // No cgroup's: a word that is new is another one too.
        let mut none = 0_u64;
        let first = (&raw mut none).cast();
        let create = BPF_SK_STORAGE_GET_F_CREATE.into();
        // SAFETY: by the caller.
        let word = unsafe { bpf_sk_storage_get(self.map(), sock.cast_mut().cast(), first, create) }.cast::<u64>();
        if word.is_null() {
            return None;
        }
        // SAFETY: the pointer was checked for null.
        let changed = unsafe { *word } != value;
        if changed {
            // SAFETY: as above. Readers on other CPUs see the old word or the new one.
            unsafe { core::ptr::write_volatile(word, value) };
        }
        Some(changed)
    }

    #[inline(always)]
    fn map(&'static self) -> *mut core::ffi::c_void {
        (&raw const *self).cast_mut().cast()
    }
}
