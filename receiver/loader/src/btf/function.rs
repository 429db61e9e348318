//! Functions and the types of their parameters.

use std::str;

use super::{
    Btf, Kind, TypeId,
    header::word,
    record::{PARAMETER, Record},
};

/// A function that programs can attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The type id that the kernel takes when a program attaches.
    pub id: TypeId,
    /// The parameters, in order.
    pub parameters: Vec<Parameter<'a>>,
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// The name; empty if the BTF has none, for example in tracepoints.
    pub name: &'a str,
    /// Size in bytes; `None` if the type has no size.
    pub size: Option<u64>,
    /// The name of the struct or union that the parameter points to, if it is a pointer to one.
    pub points_to: Option<&'a str>,
}

impl<'a> Btf<'a> {
    /// Returns the function that fentry and fexit programs attach to. `None` if it does not exist or is malformed.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<Function<'a>> {
        self.function_of(self.find(name, Kind::Function)?)
    }

    fn function_of(&self, id: TypeId) -> Option<Function<'a>> {
        let prototype = self.record(TypeId(self.record(id).ok()?.size_or_type)).ok()?;
        Some(Function { id, parameters: self.parameters(&prototype)? })
    }

    /// Returns all functions of this name; several files of the kernel may define static functions of one name.
    pub fn functions(&self, name: &str) -> impl Iterator<Item = TypeId> {
        self.named_functions().filter(move |(_, own)| *own == name).map(|(id, _)| id)
    }

    /// Returns the names of the functions that take a pointer to the struct `target`.
    pub fn takers(&self, target: &str) -> impl Iterator<Item = &'a str> {
        let takes = move |function: Function<'a>| function.parameters.iter().any(|one| one.points_to == Some(target));
        self.named_functions().filter(move |(id, _)| self.function_of(*id).is_some_and(&takes)).map(|(_, name)| name)
    }

    /// Returns the functions of this BTF without its base, in order of type id.
    fn named_functions(&self) -> impl Iterator<Item = (TypeId, &'a str)> {
        self.own_ids().filter_map(|id| {
            let record = self.record(id).ok().filter(|record| record.kind == Some(Kind::Function))?;
            Some((id, str::from_utf8(self.string(&record).ok()?).ok()?))
        })
    }

    /// Returns the tracepoint that `tp_btf` programs attach to, without the first parameter: a context pointer for the
    /// kernel's own probes. `None` if it does not exist or is malformed.
    #[must_use]
    pub fn tracepoint(&self, name: &str) -> Option<Function<'a>> {
        let id = self.find(&tracepoint_type(name), Kind::Typedef)?;
        let pointer = self.resolved(id).ok().filter(|record| record.kind == Some(Kind::Pointer))?;
        let mut parameters = self.parameters(&self.resolved(TypeId(pointer.size_or_type)).ok()?)?;
        if !parameters.is_empty() {
            parameters.remove(0);
        }
        Some(Function { id, parameters })
    }

    fn parameters(&self, prototype: &Record<'a>) -> Option<Vec<Parameter<'a>>> {
        if prototype.kind != Some(Kind::Prototype) {
            return None;
        }
        let parameter = |bytes| {
            let name = str::from_utf8(self.string_at(word(bytes, 0)?)?).ok()?;
            let id = TypeId(word(bytes, 4)?);
            Some(Parameter { name, size: self.size(id).ok(), points_to: self.pointee(id) })
        };
        prototype.rest.chunks_exact(PARAMETER).map(parameter).collect()
    }

    fn pointee(&self, id: TypeId) -> Option<&'a str> {
        let pointer = self.resolved(id).ok().filter(|record| record.kind == Some(Kind::Pointer))?;
        let target = self.resolved(TypeId(pointer.size_or_type)).ok()?;
        let named = target.kind.is_some_and(|kind| kind.has_members() || kind == Kind::Forward);
        let name = str::from_utf8(self.string(&target).ok()?).ok()?;
        (named && !name.is_empty()).then_some(name)
    }
}

/// Returns the name of the typedef that declares a tracepoint.
pub(super) fn tracepoint_type(name: &str) -> String {
    format!("btf_trace_{name}")
}
