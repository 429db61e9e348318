//! Kernel fields, read at offsets that the loader sets.
//!
//! Each declaration is a read-only global whose symbol is the struct and path of the field and whose value, in the
//! object, is the size the program reads (zero for a bit-field). Before loading, the loader replaces that value by
//! what the running kernel's BTF says and the map is frozen: the verifier then sees a constant, drops the branches
//! that it decides, and takes `pointer + offset` for a typed load.

use core::marker::PhantomData;

use aya_ebpf::helpers::bpf_probe_read_kernel;
use undercurrent_ebpf::abi::ABSENT;

/// A field of `size_of::<T>()` bytes.
#[repr(transparent)]
pub struct Field<T> {
    offset: u32,
    kind: PhantomData<T>,
}

// SAFETY: the offset is never written after load, and no `T` is stored.
unsafe impl<T> Sync for Field<T> {}

impl<T: Copy> Field<T> {
    pub const fn declared() -> Self {
        Self { offset: size_of::<T>() as u32, kind: PhantomData }
    }

    #[inline(always)]
    fn offset(&'static self) -> u32 {
        // SAFETY: a reference to a live static; volatile because the loader changes the value behind the compiler's back.
        unsafe { core::ptr::read_volatile(&raw const self.offset) }
    }

    /// Whether the running kernel has the field.
    #[inline(always)]
    pub fn present(&'static self) -> bool {
        self.offset() != ABSENT
    }

    /// Reads the field behind a pointer whose type the verifier knows.
    ///
    /// # Safety
    /// `base` is a typed kernel pointer to the declared struct, and the field is present.
    #[inline(always)]
    pub unsafe fn load(&'static self, base: *const u8) -> T {
        // SAFETY: by the caller; the kernel handles faults of typed loads and yields zero.
        unsafe { core::ptr::read_volatile(base.add(self.offset() as usize).cast()) }
    }

    /// Reads the field behind a pointer that the verifier knows nothing of; `None` when the kernel refuses.
    ///
    /// # Safety
    /// `base` points to the declared struct.
    #[inline(always)]
    pub unsafe fn probe(&'static self, base: *const u8) -> Option<T> {
        if !self.present() {
            return None;
        }
        // SAFETY: the helper checks the address itself.
        unsafe { bpf_probe_read_kernel(base.add(self.offset() as usize).cast()).ok() }
    }
}

/// A bit-field, as its byte's offset in the low half and its mask within that byte in the high half.
#[repr(transparent)]
pub struct BitField(u32);

impl BitField {
    pub const fn declared() -> Self {
        Self(0)
    }

    #[inline(always)]
    fn place(&'static self) -> u32 {
        // SAFETY: as for `Field`.
        unsafe { core::ptr::read_volatile(&raw const self.0) }
    }

    /// Whether any bit of the field is set; false where the running kernel has no such field.
    ///
    /// # Safety
    /// `base` is a typed kernel pointer to the declared struct.
    #[inline(always)]
    pub unsafe fn any(&'static self, base: *const u8) -> bool {
        let place = self.place();
        if place == ABSENT {
            return false;
        }
        // SAFETY: by the caller.
        let byte = unsafe { core::ptr::read_volatile(base.add((place & 0xffff) as usize)) };
        u32::from(byte) & (place >> 16) != 0
    }
}

/// Declares kernel fields: `NAME: type = "struct.path"`.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $path:literal;)+) => {$(
        $(#[$doc])*
        #[unsafe(export_name = $path)]
        #[unsafe(link_section = ".rodata.fields")]
        pub static $name: $kind = <$kind>::declared();
    )+};
}
pub(crate) use fields;
