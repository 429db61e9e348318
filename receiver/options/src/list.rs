//! Lists of layers and stages, by name.

use std::{borrow::Cow, fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};
use undercurrent_ebpf::abi::{latency::Layer, transmit::TransmitLayer};

/// Values with a name in configuration and metrics.
pub trait Named: Copy + PartialEq + 'static {
    /// Every value, in the order of its path.
    const ALL: &'static [Self];
    /// The name of each value, in the order of [`Self::ALL`].
    const NAMES: &'static [&'static str];
    /// The description of a name in the schema.
    const DESCRIPTION: &'static str;
}

impl Named for Layer {
    const ALL: &'static [Self] = &Self::ALL;
    const NAMES: &'static [&'static str] = &["host", "ip", "transport", "socket_enqueued", "socket_read"];
    const DESCRIPTION: &'static str = "The name of a layer.";
}

impl Named for TransmitLayer {
    const ALL: &'static [Self] = &Self::ALL;
    const NAMES: &'static [&'static str] = &["stack", "qdisc", "device"];
    const DESCRIPTION: &'static str = "The name of a stage.";
}

/// A list of distinct values in the order of their path, with at least one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

impl<T: Named> List<T> {
    /// Returns the values.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.0.iter().copied()
    }

    /// Returns true if the list contains a value.
    #[must_use]
    pub fn contains(&self, value: T) -> bool {
        self.0.contains(&value)
    }

    /// Returns a list of some values.
    #[must_use]
    pub fn some(is_in: impl Fn(T) -> bool) -> Self {
        Self(T::ALL.iter().copied().filter(|value| is_in(*value)).collect())
    }

    /// Sorts the requested values into the order of their path.
    fn sorted(requested: &[T]) -> Result<Self, &'static str> {
        let sorted: Vec<T> = T::ALL.iter().copied().filter(|value| requested.contains(value)).collect();
        if sorted.is_empty() {
            return Err("the list of layers is empty: name one, or switch the signal off with `enabled: false`");
        }
        if sorted.len() < requested.len() {
            return Err("a layer is named twice: leave one out");
        }
        Ok(Self(sorted))
    }
}

impl<T: Named> Default for List<T> {
    fn default() -> Self {
        Self(T::ALL.to_vec())
    }
}

impl<T: Named> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = T::ALL.iter().zip(T::NAMES).filter(|(value, _)| self.contains(**value)).map(|(_, name)| name);
        serializer.collect_seq(names)
    }
}

impl<'de, T: Named> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let requested: Vec<T> = Vec::<Name<T>>::deserialize(deserializer)?.into_iter().map(|name| name.0).collect();
        Self::sorted(&requested).map_err(D::Error::custom)
    }
}

impl<T: Named> JsonSchema for List<T> {
    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<Self>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array",
            "items": { "description": T::DESCRIPTION, "type": "string", "enum": T::NAMES },
            "description": "A list of distinct names.",
            "minItems": 1,
            "uniqueItems": true,
        })
    }
}

/// The value of a name.
struct Name<T>(T);

impl<'de, T: Named> Deserialize<'de> for Name<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor(PhantomData)).map(Self)
    }
}

struct NameVisitor<T>(PhantomData<T>);

impl<T: Named> Visitor<'_> for NameVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of `{}`", T::NAMES.join("`, `"))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        let known = T::ALL.iter().zip(T::NAMES).find(|(_, known)| **known == name);
        known.map(|(value, _)| *value).ok_or_else(|| E::unknown_variant(name, T::NAMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_distinct() {
        let list = |text: &str| serde_json::from_str::<List<Layer>>(text).map_err(|error| error.to_string());
        let read = list(r#"["socket_read", "ip"]"#).expect("layers");
        assert_eq!(read.iter().collect::<Vec<_>>(), [Layer::Ip, Layer::SocketRead]);
        assert_eq!(serde_json::to_string(&read).expect("names"), r#"["ip","socket_read"]"#);
        assert!(list("[]").expect_err("refused").contains("empty"));
        assert!(list(r#"["ip", "ip"]"#).expect_err("refused").contains("twice"));
        assert!(list(r#"["tcp"]"#).expect_err("refused").contains("unknown variant `tcp`, expected one of `host`"));
    }

    #[test]
    fn each_value_has_a_name() {
        assert_eq!(<Layer as Named>::ALL.len(), Layer::NAMES.len());
        assert_eq!(<TransmitLayer as Named>::ALL.len(), TransmitLayer::NAMES.len());
        assert!(Layer::ALL.iter().enumerate().all(|(index, layer)| *layer as usize == index));
        assert!(TransmitLayer::ALL.iter().enumerate().all(|(index, stage)| *stage as usize == index));
    }
}
