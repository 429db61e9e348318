//! Kernel fields, read at offsets that the loader sets.
//!
//! The loader takes the offsets from the running kernel's BTF. To the verifier they are constants: it removes branches that an
//! offset decides, and checks `pointer + offset` as a typed load.

use core::{
    arch::asm,
    hint::assert_unchecked,
    marker::PhantomData,
    mem::{self, MaybeUninit},
};

use aya_ebpf::helpers::{self, generated::bpf_probe_read_kernel};
use undercurrent_ebpf::abi::{ABSENT, constant as abi};
use zerocopy::FromBytes;

use super::constant;

/// A field of the struct `T` with a value `V`, read as `size_of::<V>()` bytes.
#[repr(transparent)]
pub struct Field<T, V, const PLACEHOLDER: u64> {
    size: u32,
    kind: PhantomData<fn(T) -> V>,
}

impl<T, V, const PLACEHOLDER: u64> Field<T, V, PLACEHOLDER> {
    pub const fn declared() -> Self {
        Self { size: size_of::<V>() as u32, kind: PhantomData }
    }

    /// Returns true if the running kernel has the field.
    #[inline(always)]
    pub fn present(&'static self) -> bool {
        constant::number::<PLACEHOLDER>() != ABSENT
    }
}

/// Returns the address of a field, for a struct at `base`.
///
/// The compiler would copy the base and add the offset. Adding the base to the offset saves that instruction, and the verifier
/// accepts both.
#[inline(always)]
pub(super) fn address<const FIELD: u64>(base: *const u8) -> *const u8 {
    let address: *const u8;
    // SAFETY: an addition of registers.
    unsafe {
        asm!(
            "{offset} += {base}",
            offset = inlateout(reg) u64::from(constant::number::<FIELD>()) => address,
            base = in(reg) base,
            options(pure, nomem, nostack)
        );
    }
    address
}

/// Loads an unsigned number at the offset of a field. The assembly is not `pure`, or the compiler would move the load before a check
/// of the pointer or of the field.
macro_rules! load {
    ($type:literal, $base:expr, $field:expr) => {{
        let word: u64;
        // SAFETY: the caller passes a pointer for which the verifier checks the load.
        unsafe {
            asm!(
                concat!("{} = *(", $type, " *)({} - {})"),
                out(reg) word,
                in(reg) $base,
                const abi::load($field).unsigned_abs(),
                options(nomem, nostack, preserves_flags)
            );
        }
        word
    }};
}
/// Reads a field by one instruction, or by two if it has 16 bytes.
///
/// # Safety
/// `base` is a pointer with a BTF type, so that the verifier checks the load.
#[inline(always)]
pub(super) unsafe fn load<V: Copy + FromBytes, const FIELD: u64>(base: *const u8) -> V {
    let word = match size_of::<V>() {
        1 => load!("u8", base, FIELD),
        2 => load!("u16", base, FIELD),
        4 => load!("u32", base, FIELD),
        8 => load!("u64", base, FIELD),
        // SAFETY: the verifier checks the loads. Volatile, so that the compiler does not move them.
        _ => return unsafe { address::<FIELD>(base).cast::<V>().read_volatile() },
    };
    // SAFETY: the load clears the bits above the value.
    unsafe { assert_unchecked(word <= u64::MAX >> (u64::BITS - 8 * size_of::<V>() as u32)) };
    // SAFETY: on this little-endian target, the value is the first bytes of the word. Every sequence of bytes is a valid `V`.
    unsafe { mem::transmute_copy(&word) }
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

/// A bit-field of the struct `T`, within one byte.
#[repr(transparent)]
pub struct BitField<T, const PLACEHOLDER: u64> {
    size: u32,
    kind: PhantomData<fn(T)>,
}

impl<T, const PLACEHOLDER: u64> BitField<T, PLACEHOLDER> {
    pub const fn declared() -> Self {
        Self { size: 0, kind: PhantomData }
    }

    /// Returns the mask of the field's bits in the lowest byte, and the offset of their byte above; zero if the running kernel lacks
    /// the field.
    #[inline(always)]
    pub(super) fn bits(&'static self) -> u32 {
        constant::number::<PLACEHOLDER>()
    }
}

/// Declares structs of the kernel and their fields: `NAME: Kind<Struct, ...> = "struct.path"`, or
/// `"struct.path..struct.path"` if kernels differ.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $kind:ident<$($argument:ty),+> = $path:literal;)+) => {$(
        $(#[$doc])*
        #[unsafe(export_name = $path)]
        #[unsafe(link_section = ".constants.fields")]
        pub static $name: $kind<$($argument,)+ { undercurrent_ebpf::abi::constant::placeholder($path) }> =
            $kind::declared();
    )+
        const _: () = assert!(
            undercurrent_ebpf::abi::constant::differ(&[$(undercurrent_ebpf::abi::constant::placeholder($path)),+]),
            "two fields have one placeholder in loads: change `MARK`"
        );
    };
}
pub(crate) use fields;
