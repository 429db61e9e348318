//! Pointers into the kernel's memory, by what the verifier knows of them.

use super::field::{BitField, Field};

/// A pointer to a struct whose fields can be read.
pub trait Pointer: Copy {
    /// A field, which the running kernel has.
    fn read<T: Copy>(self, field: &'static Field<T>) -> T;

    /// Whether any bit of a field is set; false where the running kernel has no such field.
    fn any(self, field: &'static BitField) -> bool;

    /// What a field points to.
    fn follow(self, field: &'static Field<u64>) -> Self;

    /// The pointer itself.
    fn address(self) -> *const u8;
}

/// One whose type the verifier knows: a field takes a load.
#[derive(Clone, Copy)]
pub struct Typed(*const u8);

impl Typed {
    /// # Safety
    /// The verifier knows the pointer as one to the struct whose fields are read.
    #[inline(always)]
    pub const unsafe fn new(pointer: *const u8) -> Self {
        Self(pointer)
    }
}

impl Pointer for Typed {
    #[inline(always)]
    fn read<T: Copy>(self, field: &'static Field<T>) -> T {
        // SAFETY: by the type.
        unsafe { field.load(self.0) }
    }

    #[inline(always)]
    fn any(self, field: &'static BitField) -> bool {
        // SAFETY: by the type.
        unsafe { field.any(self.0) }
    }

    #[inline(always)]
    fn follow(self, field: &'static Field<u64>) -> Self {
        // The verifier follows pointers.
        Self(self.read(field) as *const u8)
    }

    #[inline(always)]
    fn address(self) -> *const u8 {
        self.0
    }
}

/// One that is only known to be somewhere, as all of a kprobe's are: a field takes a helper, and is zero where there is
/// nothing.
#[derive(Clone, Copy)]
pub struct Untyped(pub *const u8);

impl Pointer for Untyped {
    #[inline(always)]
    fn read<T: Copy>(self, field: &'static Field<T>) -> T {
        field.probe(self.0)
    }

    #[inline(always)]
    fn any(self, field: &'static BitField) -> bool {
        field.probe_any(self.0)
    }

    #[inline(always)]
    fn follow(self, field: &'static Field<u64>) -> Self {
        Self(self.read(field) as *const u8)
    }

    #[inline(always)]
    fn address(self) -> *const u8 {
        self.0
    }
}
