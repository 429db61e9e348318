//! A codec for requests that are encoded already.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::{
    Message as _,
    bytes::{BufMut as _, Bytes},
};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::otlp::transport::Reply;

/// Sends encoded requests, and decodes replies.
pub(super) struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Reply;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, request: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(request.len());
        buffer.put(request);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Reply;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Reply>, Status> {
        // The replies of all services have one encoding: a number of rejected items, and a message.
        let reply = ExportMetricsServiceResponse::decode(buffer);
        let partial = reply.map_err(|error| Status::internal(error.to_string()))?.partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
        Ok(Some(Reply { rejected, message: partial.error_message }))
    }
}
