//! Bodies of requests and responses.

use std::io::{self, Write as _};

use http::HeaderValue;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use prost::bytes::Bytes;

use crate::otlp::Compression;

/// The limit of a response in bytes. A reply has a number and a message.
pub(super) const LIMIT: usize = 64 * 1024;

/// The content of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The whole body.
    Whole(Bytes),
    /// The body exceeds the limit.
    TooLong,
}

/// Compresses a body. Returns it with its `content-encoding`.
pub(super) fn compress(body: Bytes, compression: Compression) -> (Bytes, Option<HeaderValue>) {
    let compressed = match compression {
        Compression::None => return (body, None),
        Compression::Gzip => gzip(&body).map(|bytes| (bytes, "gzip")),
        Compression::Zstd => zstd::bulk::compress(&body, zstd::DEFAULT_COMPRESSION_LEVEL).map(|bytes| (bytes, "zstd")),
    };
    // Writing into memory cannot fail.
    match compressed {
        Ok((bytes, coding)) => (bytes.into(), Some(HeaderValue::from_static(coding))),
        Err(_) => (body, None),
    }
}

fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body)?;
    encoder.finish()
}

/// Reads a body up to the limit.
///
/// # Errors
/// If the connection ends before the body.
pub(super) async fn read<B>(body: B) -> Result<Content, Box<dyn std::error::Error + Send + Sync>>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    match Limited::new(body, LIMIT).collect().await {
        Ok(collected) => Ok(Content::Whole(collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Ok(Content::TooLong),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::Full;

    use super::*;

    #[test]
    fn bodies_are_compressed_on_request_only() {
        let body = Bytes::from(vec![7; 10_000]);
        assert_eq!(compress(body.clone(), Compression::None), (body.clone(), None));
        let (compressed, coding) = compress(body.clone(), Compression::Gzip);
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut text).expect("gzip");
        assert_eq!((text, coding), (body.to_vec(), Some(HeaderValue::from_static("gzip"))));
        assert!(compressed.len() < 1000);
        let (compressed, coding) = compress(body.clone(), Compression::Zstd);
        assert_eq!(zstd::bulk::decompress(&compressed, 20_000).expect("zstd"), body);
        assert_eq!((coding, compressed.len() < 1000), (Some(HeaderValue::from_static("zstd")), true));
    }

    #[tokio::test]
    async fn long_bodies_are_cut_off() {
        for (length, is_whole) in [(0, true), (LIMIT, true), (LIMIT + 1, false)] {
            let read = read(Full::new(Bytes::from(vec![0; length]))).await.expect("a body");
            assert_eq!(matches!(read, Content::Whole(bytes) if bytes.len() == length), is_whole, "{length}");
        }
    }
}
