//! Random struct layouts: the reader returns the offset of every member.

use proptest::prelude::*;

use super::{
    super::{BtfError, Extent, Kind, Member, TypeId},
    builder::Builder,
    parse,
};

/// A random type.
#[derive(Clone, Debug)]
enum Shape {
    Int(u32),
    Pointer,
    Array(Box<Shape>, u32),
    Compound(Compound),
    Wrapped(Kind, Box<Shape>),
}

/// A random struct or union, with padding before each member.
#[derive(Clone, Debug)]
struct Compound {
    union: bool,
    /// True if offsets and widths share a word, the encoding of compilers since 2018.
    flag: bool,
    members: Vec<(u32, Part)>,
}

#[derive(Clone, Debug)]
enum Part {
    Named(Shape),
    Anonymous(Compound),
    /// A bit-field: the number of skipped bits in its int, and the width.
    Bits(u32, u32),
}

/// A path and the expected member.
type Expected = (String, Extent, bool);

fn shape() -> BoxedStrategy<Shape> {
    let leaf = prop_oneof![prop_oneof![Just(1), Just(2), Just(4), Just(8)].prop_map(Shape::Int), Just(Shape::Pointer)];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let wrapper = prop_oneof![Just(Kind::Typedef), Just(Kind::Const), Just(Kind::Volatile), Just(Kind::TypeTag)];
        prop_oneof![
            (inner.clone(), 1_u32..5).prop_map(|(shape, count)| Shape::Array(Box::new(shape), count)),
            (wrapper, inner.clone()).prop_map(|(kind, shape)| Shape::Wrapped(kind, Box::new(shape))),
            compound(inner.boxed()).prop_map(Shape::Compound),
        ]
    })
    .boxed()
}

fn compound(inner: BoxedStrategy<Shape>) -> impl Strategy<Value = Compound> {
    let named = inner.prop_map(Part::Named).boxed();
    let bits = (0_u32..31, 1_u32..32).prop_map(|(skip, width)| Part::Bits(skip, width.min(32 - skip)));
    let flat = (any::<bool>(), any::<bool>(), prop::collection::vec((0_u32..4, named.clone()), 1..4))
        .prop_map(|(union, flag, members)| Part::Anonymous(Compound { union, flag, members }));
    let part = prop_oneof![4 => named, 2 => bits, 1 => flat];
    (any::<bool>(), any::<bool>(), prop::collection::vec((0_u32..4, part), 1..5))
        .prop_map(|(union, flag, members)| Compound { union, flag, members })
}

/// A writer of types that records the expected members.
struct Layout {
    builder: Builder,
    names: usize,
}

impl Layout {
    /// Writes a type and returns its id, size and expected members.
    fn shape(&mut self, shape: &Shape) -> (TypeId, u32, Vec<Expected>) {
        match shape {
            Shape::Int(size) => (self.builder.int(*size, 0, size * 8), *size, Vec::new()),
            Shape::Pointer => (self.builder.add(Kind::Pointer, "", false, 0, 0, &[]), 8, Vec::new()),
            Shape::Array(element, count) => {
                let (id, size, inside) = self.shape(element);
                let last = count - 1;
                let element = Extent::Bytes { offset: last * size, size: u64::from(size) };
                let mut expected = vec![(last.to_string(), element, is_aggregate(shape_of(shape)))];
                expected.extend(inside.into_iter().map(|(path, extent, aggregate)| {
                    (format!("{last}.{path}"), moved(extent, last * size), aggregate)
                }));
                let index = self.builder.int(4, 0, 32);
                (self.builder.add(Kind::Array, "", false, 0, 0, &[id.0, index.0, *count]), size * count, expected)
            }
            Shape::Wrapped(kind, inner) => {
                let (id, size, expected) = self.shape(inner);
                let name = if *kind == Kind::Typedef { "wrapped_t" } else { "" };
                (self.builder.add(*kind, name, false, 0, id.0, &[]), size, expected)
            }
            Shape::Compound(compound) => self.compound(compound, ""),
        }
    }

    fn compound(&mut self, compound: &Compound, name: &str) -> (TypeId, u32, Vec<Expected>) {
        let (mut members, mut expected, mut end, mut size) = (Vec::new(), Vec::new(), 0, 0);
        for (padding, part) in &compound.members {
            let offset = if compound.union { 0 } else { end + padding };
            let own = if matches!(part, Part::Anonymous(_)) { String::new() } else { self.fresh_name() };
            let (id, bytes, word) = match part {
                Part::Named(shape) => {
                    let (id, bytes, inside) = self.shape(shape);
                    let extent = Extent::Bytes { offset, size: u64::from(bytes) };
                    expected.push((own.clone(), extent, is_aggregate(shape)));
                    expected.extend(
                        inside.into_iter().map(|(path, extent, aggregate)| {
                            (format!("{own}.{path}"), moved(extent, offset), aggregate)
                        }),
                    );
                    (id, bytes, offset * 8)
                }
                Part::Anonymous(inner) => {
                    let (id, bytes, inside) = self.compound(inner, "");
                    expected.extend(
                        inside.into_iter().map(|(path, extent, aggregate)| (path, moved(extent, offset), aggregate)),
                    );
                    (id, bytes, offset * 8)
                }
                Part::Bits(skip, width) => {
                    let extent = Extent::Bits { offset: u64::from(offset * 8 + skip), width: *width };
                    // Old compilers encoded bit-fields as ints that are narrower than their bytes.
                    let whole = *skip == 0 && *width == 32 && !compound.flag;
                    expected.push((own.clone(), if whole { Extent::Bytes { offset, size: 4 } } else { extent }, false));
                    if compound.flag {
                        (self.builder.int(4, 0, 32), 4, width << 24 | (offset * 8 + skip))
                    } else {
                        (self.builder.int(4, *skip, *width), 4, offset * 8)
                    }
                }
            };
            members.push((own, id, word));
            end = offset + bytes;
            size = size.max(end);
        }
        let kind = if compound.union { Kind::Union } else { Kind::Struct };
        (self.builder.compound(kind, name, compound.flag, size, &members), size, expected)
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        format!("m{}", self.names)
    }
}

/// Returns the shape of an array's elements.
fn shape_of(array: &Shape) -> &Shape {
    if let Shape::Array(element, _) = array { element } else { array }
}

fn is_aggregate(shape: &Shape) -> bool {
    match shape {
        Shape::Int(_) | Shape::Pointer => false,
        Shape::Array(..) | Shape::Compound(_) => true,
        Shape::Wrapped(_, inner) => is_aggregate(inner),
    }
}

fn moved(extent: Extent, by: u32) -> Extent {
    match extent {
        Extent::Bytes { offset, size } => Extent::Bytes { offset: offset + by, size },
        Extent::Bits { offset, width } => Extent::Bits { offset: offset + u64::from(by) * 8, width },
    }
}

proptest! {
    #[test]
    fn members_have_the_offsets_of_the_layout(outermost in compound(shape())) {
        let mut layout = Layout { builder: Builder::new(), names: 0 };
        let (id, size, expected) = layout.compound(&outermost, "outermost");
        let raw = layout.builder.build();
        let btf = parse(&raw);
        let kind = if outermost.union { Kind::Union } else { Kind::Struct };
        prop_assert_eq!(btf.find("outermost", kind), Some(id));
        prop_assert_eq!(btf.size(id), Ok(u64::from(size)));
        for (path, extent, aggregate) in expected {
            let Member { extent: found, aggregate: parts, .. } = btf.member("outermost", &path).expect("a written member");
            prop_assert_eq!((found, parts), (extent, aggregate), "{}", path);
        }
    }
}

#[test]
fn lookup_errors_name_the_missing_part() {
    let mut builder = Builder::new();
    let int = builder.int(4, 0, 32);
    let array = builder.add(Kind::Array, "", false, 0, 0, &[int.0, int.0, 3]);
    let members = [("id".to_owned(), int, 0), ("list".to_owned(), array, 32), ("bits".to_owned(), int, 3 << 24 | 128)];
    builder.compound(Kind::Struct, "thing", true, 20, &members);
    let raw = builder.build();
    let btf = parse(&raw);
    let error = |name, path| btf.member(name, path).map_err(|error| error.to_string());
    assert_eq!(error("other", "id"), Err("no struct named other".to_owned()));
    assert_eq!(error("thing", "di"), Err("thing.di: no member di".to_owned()));
    assert_eq!(error("thing", "id.x"), Err("thing.id.x: x is not in a struct, union or array".to_owned()));
    assert_eq!(error("thing", "bits.x"), Err("thing.bits.x: x is not in a struct, union or array".to_owned()));
    assert_eq!(error("thing", "list.3"), Err("thing.list.3: 3 is not in a struct, union or array".to_owned()));
    assert!(error("thing", "list.2").is_ok());
    assert_eq!(error("thing", ""), Err("thing.: no member ".to_owned()));
}

#[test]
fn recursive_types_are_errors() {
    let mut builder = Builder::new();
    // Recursive types: a typedef, an array, and a struct with many anonymous members of the struct's type.
    builder.add(Kind::Typedef, "self", false, 0, 1, &[]);
    builder.add(Kind::Array, "", false, 0, 0, &[2, 2, 1]);
    let members = vec![(String::new(), TypeId(3), 0); 1000];
    builder.compound(Kind::Struct, "nested", false, 8, &members);
    let raw = builder.build();
    let btf = parse(&raw);
    assert_eq!(btf.member("self", "x"), Err(BtfError::TooDeep { id: 1 }));
    assert_eq!(btf.size(TypeId(2)), Err(BtfError::TooDeep { id: 2 }));
    assert!(matches!(btf.member("nested", "x"), Err(BtfError::Malformed { .. })));
}
