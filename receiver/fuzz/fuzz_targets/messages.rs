//! Decodes any bytes as requests to the loader and the reader: no panic. A query to a runtime is one request at most, whatever its texts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent_kernel::messages::Request;
use undercurrent_reader::{FileRequest, ForeignRequest, Query};

/// The method and the path of Docker's description of a container.
const INSPECT: &[u8] = b"GET /containers/";
const LINE_END: &[u8] = b"\r\n";

fuzz_target!(|bytes: &[u8]| {
    let _ = postcard::from_bytes::<Request>(bytes);
    let _ = postcard::from_bytes::<FileRequest>(bytes);
    let _ = postcard::from_bytes::<ForeignRequest>(bytes);
    if let Ok(query) = postcard::from_bytes::<Query>(bytes) {
        check(&query);
    }
});

fn check(query: &Query) {
    let Some(request) = query.bytes() else { return };
    if let Query::InspectContainer(_) = query {
        let lines = request.windows(2).filter(|bytes| *bytes == LINE_END).count();
        assert!(request.starts_with(INSPECT) && lines == 4, "{query:?}");
    } else {
        assert!(request.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "{query:?}");
    }
}
