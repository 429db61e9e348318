//! Encodings of requests, and their limits.

use prost::{Message, bytes::Bytes};
use serde::Serialize;
use serde_json::Value;

/// The default limit of a request in encoded bytes. Receivers refuse more than 4 MiB permanently; the difference
/// leaves space for framing.
pub const REQUEST_LIMIT: usize = 3_670_016;

/// The limit of a request in JSON, in bytes of its protobuf encoding. It is lower than the limit of receivers, because the
/// JSON tree in memory is several times larger than the request.
pub(super) const JSON_REQUEST_LIMIT: usize = 256 * 1024;

/// The encoding of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Protobuf's binary encoding.
    Protobuf,
    /// OTLP's JSON mapping.
    Json,
}

impl Encoding {
    /// Encodes a message.
    pub(crate) fn encode(self, message: &(impl Message + Serialize)) -> Bytes {
        match self {
            Self::Protobuf => message.encode_to_vec().into(),
            // OTLP's messages have text keys only, so their serialization cannot fail.
            Self::Json => to_json(message).map_or_else(|_| self.empty(), Bytes::from),
        }
    }

    /// Returns a message without fields.
    pub(crate) const fn empty(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Protobuf => b"",
            Self::Json => b"{}",
        })
    }

    /// Returns the limit of a request in bytes of its protobuf encoding.
    pub(crate) const fn request_limit(self) -> usize {
        match self {
            Self::Protobuf => REQUEST_LIMIT,
            Self::Json => JSON_REQUEST_LIMIT,
        }
    }

    /// Returns the `content-type` of requests over HTTP.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

/// Encodes a message by OTLP's JSON mapping.
fn to_json(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&json_tree(message)?)
}

/// Converts a message by OTLP's JSON mapping. The message types serialize an absent `min`, `max` or `negative` as
/// null, and the collector refuses null in place of a number. So absent fields and empty lists are omitted.
pub(super) fn json_tree(request: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(request)?;
    remove_absent(&mut value);
    Ok(value)
}

fn remove_absent(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_empty = |field: &Value| field.as_array().is_some_and(Vec::is_empty);
            // An empty `values` list is kept, because it is the value of an attribute.
            fields.retain(|key, field| !field.is_null() && (key == "values" || !is_empty(field)));
            fields.values_mut().for_each(remove_absent);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_absent),
        _ => {}
    }
}
