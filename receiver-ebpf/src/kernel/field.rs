//! Kernel fields, read at offsets that the loader sets.
//!
//! Each declaration is a read-only global whose symbol names the struct and the path of the field (alternatives for
//! other kernels after `..`) and whose value, in the object, is the size that the program reads, zero for a bit-field.
//! Before loading, the loader replaces the value by what the running kernel's BTF says, and the map is frozen: the
//! verifier then sees a constant, drops the branches that it decides, and takes `pointer + offset` for a typed load.

use core::{marker::PhantomData, mem::MaybeUninit};

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use undercurrent_ebpf::abi::ABSENT;

use super::set_outside;

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
        set_outside(&self.offset)
    }

    /// Whether the running kernel has the field.
    #[inline(always)]
    pub fn present(&'static self) -> bool {
        self.offset() != ABSENT
    }

    /// Where the field begins, for the fields of what it holds.
    ///
    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    pub unsafe fn begins(&'static self, base: *const u8) -> *const u8 {
        // SAFETY: by the caller.
        unsafe { base.add(self.offset() as usize) }
    }

    /// Reads the field behind a pointer whose type the verifier knows. It refuses the program where the kernel has no
    /// such field and [`Self::present`] does not guard the load.
    ///
    /// # Safety
    /// `base` is a typed kernel pointer to the declared struct.
    #[inline(always)]
    pub unsafe fn load(&'static self, base: *const u8) -> T {
        // SAFETY: by the caller; the kernel handles faults of typed loads and yields zero.
        unsafe { core::ptr::read_volatile(base.add(self.offset() as usize).cast()) }
    }

    /// The same behind a pointer whose type the verifier does not know, as all of a kprobe's are.
    #[inline(always)]
    pub fn probe(&'static self, base: *const u8) -> T {
        probe(base.wrapping_add(self.offset() as usize).cast())
    }
}

/// Reads behind a pointer of which the verifier knows nothing; zero where nothing can be read.
#[inline(always)]
fn probe<T: Copy>(pointer: *const T) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the helper writes as many bytes as `T` has, zeros where it faults; every `T` here is made of numbers.
    unsafe {
        let _ = bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, pointer.cast());
        value.assume_init()
    }
}

/// A bit-field within one byte: that byte's offset in the low half, and its mask there in the high half. Where the kernel
/// lacks the field both are zero.
#[repr(transparent)]
pub struct BitField(u32);

impl BitField {
    pub const fn declared() -> Self {
        Self(0)
    }

    /// Whether any bit of the field is set; false where the running kernel has no such field.
    ///
    /// # Safety
    /// `base` is a typed kernel pointer to the declared struct.
    #[inline(always)]
    pub unsafe fn any(&'static self, base: *const u8) -> bool {
        let place = set_outside(&self.0);
        // Known to the verifier, which drops what follows: kernels before 6.1 refuse a byte of the pointer at offset zero.
        if place == 0 {
            return false;
        }
        // SAFETY: by the caller.
        let byte = unsafe { core::ptr::read_volatile(base.add((place & 0xffff) as usize)) };
        u32::from(byte) & (place >> 16) != 0
    }

    /// The same behind a pointer whose type the verifier does not know.
    #[inline(always)]
    pub fn probe_any(&'static self, base: *const u8) -> bool {
        let place = set_outside(&self.0);
        place != 0 && u32::from(probe(base.wrapping_add((place & 0xffff) as usize))) & (place >> 16) != 0
    }
}

/// Declares kernel fields: `NAME: type = "struct.path"`, or `"struct.path..struct.path"` where kernels differ.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $path:literal;)+) => {$(
        $(#[$doc])*
        #[unsafe(export_name = $path)]
        #[unsafe(link_section = ".rodata.fields")]
        pub static $name: $kind = <$kind>::declared();
    )+};
}
pub(crate) use fields;
