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
    /// The type that the kernel is told when a program attaches.
    pub id: TypeId,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter<'a>>,
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// Its name; empty where the BTF has none, as in tracepoints.
    pub name: &'a str,
    /// The struct or union that it points to, if it is such a pointer.
    pub points_to: Option<&'a str>,
}

impl<'a> Btf<'a> {
    /// The function of that name, as fentry and fexit programs attach to it. `None` also where its BTF is malformed.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<Function<'a>> {
        let id = self.find(name, Kind::Function)?;
        let prototype = self.record(TypeId(self.record(id).ok()?.size_or_type)).ok()?;
        Some(Function { id, parameters: self.parameters(&prototype)? })
    }

    /// The tracepoint of that name, as `tp_btf` programs attach to it, without the context pointer that the kernel's
    /// own probes get first. `None` also where its BTF is malformed.
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
            Some(Parameter { name, points_to: self.pointee(TypeId(word(bytes, 4)?)) })
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

/// The name of the typedef that stands for a tracepoint.
pub(super) fn tracepoint_type(name: &str) -> String {
    format!("btf_trace_{name}")
}
