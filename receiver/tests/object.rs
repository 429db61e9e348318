//! The committed kernel object, given to the running kernel.

mod support;

use aya::{EbpfError, EbpfLoader, maps::MapError};

const OBJECT: &[u8] = aya::include_bytes_aligned!("../ebpf/undercurrent.bpf.o");

/// Maps are created when the object is loaded; programs wait for their hooks.
#[test]
fn the_kernel_takes_every_map() {
    let ebpf = match EbpfLoader::new().btf(None).allow_unsupported_maps().load(OBJECT) {
        Ok(ebpf) => ebpf,
        Err(EbpfError::MapError(MapError::CreateError { io_error, .. }))
            if io_error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            return support::skip("creating maps needs CAP_BPF: run as root");
        }
        Err(error) => panic!("{error:?}"),
    };
    assert!(ebpf.maps().count() > 0, "the object has no maps");
    for (name, program) in ebpf.programs() {
        assert!(program.fd().is_err(), "{name} was loaded before it was asked for");
    }
    assert!(ebpf.programs().count() > 0, "the object has no programs");
}
