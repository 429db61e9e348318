//! Encodings of requests.

use prost::{Message, bytes::Bytes};
use serde::Serialize;

use crate::{REQUEST_LIMIT, json};

/// The encoding of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Protobuf's binary encoding.
    Protobuf,
    /// OTLP's JSON mapping.
    Json,
}

impl Encoding {
    /// Encodes a message.
    pub(super) fn encode(self, message: &(impl Message + Serialize)) -> Bytes {
        match self {
            Self::Protobuf => message.encode_to_vec().into(),
            // OTLP's messages have text keys only, so their serialization cannot fail.
            Self::Json => json::to_vec(message).map_or_else(|_| self.empty(), Bytes::from),
        }
    }

    /// Returns a message without fields.
    pub(super) const fn empty(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Protobuf => b"",
            Self::Json => b"{}",
        })
    }

    /// Returns the limit of a request in bytes of its protobuf encoding.
    pub(super) const fn request_limit(self) -> usize {
        match self {
            Self::Protobuf => REQUEST_LIMIT,
            // The JSON tree in memory is several times larger than the request.
            Self::Json => json::REQUEST_LIMIT,
        }
    }

    /// Returns the `content-type` of requests over HTTP.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}
