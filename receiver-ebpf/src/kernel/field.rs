//! Kernel fields, read at offsets that the loader sets.
//!
//! Each declaration is a read-only global. Its symbol is the struct and the path of the field, with alternatives for other
//! kernels after `..`. Its value in the object is the number of bytes to read, zero for a bit-field. Before loading, the loader
//! replaces the value by the offset from the running kernel's BTF and freezes the map. To the verifier the offset is then a
//! constant: it removes branches that the offset decides, and checks `pointer + offset` as a typed load.

use core::{marker::PhantomData, mem::MaybeUninit};

use aya_ebpf::helpers::{self, generated::bpf_probe_read_kernel};
use undercurrent_ebpf::abi::ABSENT;
use zerocopy::FromBytes;

use super::load_time_value;

/// A field of the struct `T` with a value `V`, read as `size_of::<V>()` bytes.
#[repr(transparent)]
pub struct Field<T, V> {
    offset: u32,
    kind: PhantomData<fn(T) -> V>,
}

impl<T, V> Field<T, V> {
    pub const fn declared() -> Self {
        Self { offset: size_of::<V>() as u32, kind: PhantomData }
    }

    /// Returns the offset in bytes, or [`ABSENT`].
    #[inline(always)]
    pub(super) fn offset(&'static self) -> u32 {
        load_time_value(&self.offset)
    }

    /// Returns true if an offset is a field's and not [`ABSENT`].
    #[inline(always)]
    pub(super) const fn exists(offset: u32) -> bool {
        offset != ABSENT
    }

    /// Returns true if the running kernel has the field.
    #[inline(always)]
    pub fn present(&'static self) -> bool {
        Self::exists(self.offset())
    }
}

/// The value of a field that points to a `T`. [`super::pointer::Ptr::follow`] reads it.
#[derive(FromBytes)]
#[repr(transparent)]
pub struct Address<T>(u64, PhantomData<T>);

impl<T> Clone for Address<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Address<T> {}

impl<T> Address<T> {
    #[inline(always)]
    pub const fn pointer(self) -> *const T {
        self.0 as *const T
    }
}

/// The first word of a struct `T` within another struct. [`super::pointer::Ptr::embedded`] returns a pointer to it.
#[repr(transparent)]
pub struct Embedded<T>(u64, PhantomData<T>);

/// Reads memory at any address; returns zeros if the kernel cannot read there.
#[inline(always)]
pub(super) fn probe<V: FromBytes>(address: *const V) -> V {
    let mut value = MaybeUninit::<V>::zeroed();
    // SAFETY: the helper writes `size_of::<V>()` bytes, zeros if it faults; every sequence of bytes is a valid `V`.
    unsafe {
        let _ = bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<V>() as u32, address.cast());
        value.assume_init()
    }
}

/// Reads memory at an address that no [`Field`] describes; `None` if the kernel cannot read there.
#[inline(always)]
pub fn read_at<V: FromBytes>(address: u64) -> Option<V> {
    // SAFETY: the helper checks the address; every sequence of bytes is a valid `V`.
    unsafe { helpers::bpf_probe_read_kernel(address as *const V) }.ok()
}

/// A bit-field of the struct `T`, within one byte. The loader sets the offset of that byte and the mask of the field's bits
/// in it, both zero if the kernel lacks the field.
#[repr(C, align(4))]
pub struct BitField<T> {
    offset: u16,
    mask: u8,
    padding: u8,
    kind: PhantomData<fn(T)>,
}

impl<T> BitField<T> {
    pub const fn declared() -> Self {
        Self { offset: 0, mask: 0, padding: 0, kind: PhantomData }
    }

    /// Returns the offset of the byte.
    #[inline(always)]
    pub(super) fn offset(&'static self) -> u32 {
        load_time_value(&self.offset).into()
    }

    /// Returns the mask of the field's bits in the byte; zero if the running kernel lacks the field.
    #[inline(always)]
    pub(super) fn mask(&'static self) -> u8 {
        load_time_value(&self.mask)
    }
}

const _: () = assert!(size_of::<BitField<()>>() == size_of::<u32>());

/// Declares structs of the kernel and their fields: `NAME: Kind<Struct, ...> = "struct.path"`, or
/// `"struct.path..struct.path"` if kernels differ.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $path:literal;)+) => {$(
        $(#[$doc])*
        #[unsafe(export_name = $path)]
        #[unsafe(link_section = ".rodata.fields")]
        pub static $name: $kind = <$kind>::declared();
    )+};
}
pub(crate) use fields;
