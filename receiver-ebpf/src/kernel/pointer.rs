//! Typed pointers to structs of the kernel.

use core::marker::PhantomData;

use zerocopy::FromBytes;

use super::field::{self, Address, BitField, Embedded, Field, probe};

/// Reads memory of the kernel.
pub trait Access {
    /// Reads a field of a struct, by the placeholder of the field.
    ///
    /// # Safety
    /// `base` is the address in a [`Ptr`] with this access, and its struct has the field.
    unsafe fn load<V: Copy + FromBytes, const FIELD: u64>(base: *const u8) -> V;

    /// Reads the byte of a bit-field, by its placeholder and its offset.
    ///
    /// # Safety
    /// `base` is the address in a [`Ptr`] with this access, and its struct has the bit-field.
    unsafe fn byte<const FIELD: u64>(base: *const u8, offset: u32) -> u8;

    /// Returns a number that identifies the struct at an address.
    fn identity<T>(address: *const T) -> u64;

    /// True if helpers accept the pointers as those of a struct.
    const TRUSTED: bool;
}

/// Typed pointers are identified by their distance from it.
static ORIGIN: u32 = 0;

/// Access by load instructions, through pointers with a BTF type. The verifier checks each load against that type.
pub enum Typed {}

impl Access for Typed {
    const TRUSTED: bool = true;

    #[inline(always)]
    unsafe fn load<V: Copy + FromBytes, const FIELD: u64>(base: *const u8) -> V {
        // SAFETY: the verifier accepts the load only within a struct of the kernel. If the load faults, the kernel's
        // exception table sets the result to zero.
        unsafe { field::load::<V, FIELD>(base) }
    }

    #[inline(always)]
    unsafe fn byte<const FIELD: u64>(base: *const u8, _: u32) -> u8 {
        // SAFETY: the struct at `base` has the bit-field. The loader writes its offset to the instruction.
        unsafe { Self::load::<u8, FIELD>(base) }
    }

    #[inline(always)]
    fn identity<T>(address: *const T) -> u64 {
        // The distance from a global, because the verifier allows no other arithmetic on pointers.
        (address as u64).wrapping_sub(&raw const ORIGIN as u64)
    }
}

/// Access by a helper call, through pointers without a type. All pointers of a kprobe are untyped.
pub enum Probed {}

impl Access for Probed {
    const TRUSTED: bool = false;

    #[inline(always)]
    unsafe fn load<V: Copy + FromBytes, const FIELD: u64>(base: *const u8) -> V {
        probe(field::address::<FIELD>(base).cast())
    }

    #[inline(always)]
    unsafe fn byte<const FIELD: u64>(base: *const u8, offset: u32) -> u8 {
        probe(base.wrapping_add(offset as usize))
    }

    #[inline(always)]
    fn identity<T>(address: *const T) -> u64 {
        // A number, from which the verifier allows no pointer to be subtracted.
        address as u64
    }
}

/// A pointer to a struct `T` of the kernel, or null. Every field of a null pointer reads as zero.
///
/// `T` is a marker type without data. The fields of the struct are [`Field<T, V>`].
#[repr(transparent)]
pub struct Ptr<T, A = Typed>(*const T, PhantomData<A>);

impl<T, A> Clone for Ptr<T, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, A> Copy for Ptr<T, A> {}

impl<T> Ptr<T> {
    /// Wraps a pointer that has the BTF type `T`, or is null.
    ///
    /// # Safety
    /// The pointer comes from the kernel as a `T`: an argument, a field, or the result of a helper.
    #[inline(always)]
    pub const unsafe fn typed(pointer: *const T) -> Self {
        Self(pointer, PhantomData)
    }

    /// Returns a null pointer.
    #[inline(always)]
    pub const fn null() -> Self {
        Self(core::ptr::null(), PhantomData)
    }
}

impl<T> Ptr<T, Probed> {
    /// Wraps any address. The helper returns zeros if it cannot read there.
    #[inline(always)]
    pub const fn at(address: u64) -> Self {
        Self(address as *const T, PhantomData)
    }

    /// Returns a pointer to a struct that begins with a `T`.
    #[inline(always)]
    pub const fn cast<U>(self) -> Ptr<U, Probed> {
        Ptr(self.0.cast(), PhantomData)
    }
}

impl<T> Ptr<T, Probed> {
    /// Returns the [`identity`](Self::identity) of a typed pointer to the struct. It takes two helper calls.
    #[inline(always)]
    pub fn typed_identity(self) -> u64 {
        // The verifier may know that the address is a pointer, so the helper copies it as a number.
        let [address, origin] = [self.0.cast::<u8>(), (&raw const ORIGIN).cast()];
        probe((&raw const address).cast::<u64>()).wrapping_sub(probe((&raw const origin).cast()))
    }
}

impl<T, A: Access> Ptr<T, A> {
    /// Reads a field. The verifier rejects the program if the running kernel lacks the field.
    #[inline(always)]
    pub fn read<V: Copy + FromBytes, const FIELD: u64>(self, _: &'static Field<T, V, FIELD>) -> V {
        self.load::<V, FIELD>()
    }

    /// Reads a field; `None` if the running kernel lacks it.
    #[inline(always)]
    pub fn get<V: Copy + FromBytes, const FIELD: u64>(self, field: &'static Field<T, V, FIELD>) -> Option<V> {
        if field.present() { Some(self.load::<V, FIELD>()) } else { None }
    }

    /// Reads a field that is a pointer.
    #[inline(always)]
    pub fn follow<U, const FIELD: u64>(self, field: &'static Field<T, Address<U>, FIELD>) -> Ptr<U, A> {
        Ptr(self.read(field).pointer(), PhantomData)
    }

    /// Returns a pointer to a struct within the struct.
    #[inline(always)]
    pub fn embedded<U, const FIELD: u64>(self, _: &'static Field<T, Embedded<U>, FIELD>) -> Ptr<U, A> {
        Ptr(field::address::<FIELD>(self.0.cast()).cast(), PhantomData)
    }

    /// Returns true if any bit of a field is set; false if the running kernel lacks the field.
    #[inline(always)]
    pub fn any<const FIELD: u64>(self, field: &'static BitField<T, FIELD>) -> bool {
        let bits = field.bits();
        // A constant to the verifier, which removes the load: kernels before 6.1 reject a byte load at offset zero.
        if bits == 0 {
            return false;
        }
        // SAFETY: the field is one of `T`.
        let byte = unsafe { A::byte::<FIELD>(self.0.cast(), bits >> 8) };
        u32::from(byte) & bits != 0
    }

    /// Returns the pointer for access by a helper, which can read beyond the pointer's type.
    #[inline(always)]
    pub const fn probed(self) -> Ptr<T, Probed> {
        Ptr(self.0, PhantomData)
    }

    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer for helpers, which check its type.
    #[inline(always)]
    pub const fn raw(self) -> *const T {
        self.0
    }

    /// Returns the pointer, or `None` if it is null.
    #[inline(always)]
    pub fn non_null(self) -> Option<Self> {
        if self.is_null() { None } else { Some(self) }
    }

    /// Returns a number that identifies the struct while it exists.
    #[inline(always)]
    pub fn identity(self) -> u64 {
        A::identity(self.0)
    }

    #[inline(always)]
    fn load<V: Copy + FromBytes, const FIELD: u64>(self) -> V {
        // SAFETY: the callers take the placeholder from a field of `T`.
        unsafe { A::load::<V, FIELD>(self.0.cast()) }
    }
}
