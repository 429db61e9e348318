//! Attributes of points and resources.

use std::borrow::Cow;

use opentelemetry::{Array, KeyValue};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A string.
    Text(Cow<'static, str>),
    /// An integer.
    Integer(i64),
    /// A boolean.
    Flag(bool),
    /// A list of strings.
    Texts(Vec<Cow<'static, str>>),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<Cow<'static, str>> for Value {
    fn from(text: Cow<'static, str>) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts.into_iter().map(Cow::Owned).collect())
    }
}

impl From<Value> for opentelemetry::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(text) => text.into(),
            Value::Integer(number) => number.into(),
            Value::Flag(flag) => flag.into(),
            Value::Texts(texts) => Self::Array(Array::String(texts.into_iter().map(Into::into).collect())),
        }
    }
}

/// Formats lists as JSON, as the specification requires for formats that support only string values.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.pad(text),
            Self::Integer(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Texts(texts) => f.pad(&serde_json::json!(texts).to_string()),
        }
    }
}

/// A list of distinct keys with their values, in insertion order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attributes(Vec<(Cow<'static, str>, Value)>);

impl Attributes {
    /// Returns an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the list with one more attribute. Replaces an earlier value of the key.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        self.set(key, value);
        self
    }

    /// Sets the value of a key. Replaces an earlier value.
    pub fn set(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(existing, _)| *existing == key) {
            Some((_, existing)) => *existing = value,
            None => self.0.push((key, value)),
        }
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.iter().find(|(existing, _)| *existing == key).map(|(_, value)| value)
    }

    /// Returns the attributes in the types of the OpenTelemetry API.
    #[must_use]
    pub fn key_values(&self) -> Vec<KeyValue> {
        self.0.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect()
    }

    /// Returns every key with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_one_text() {
        let texts = Value::from(vec!["1.27".to_owned(), "a \"b\"".to_owned()]);
        assert_eq!(texts.to_string(), r#"["1.27","a \"b\""]"#);
        assert_eq!(
            format!("{:>4}|{:>4}|{:>4}", Value::from("a"), Value::from(7_u32), Value::Texts(vec![])),
            "   a|   7|  []"
        );
    }
}
