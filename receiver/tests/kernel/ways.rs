//! Tests that data read by other system calls than a plain TCP read counts as documented.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::{
    net::{AddressFamily, SocketType, accept, bind, connect, getsockname, ipproto, listen, socket},
    pipe::{SpliceFlags, pipe, splice},
};

use super::{
    latency::{DURATION, on_functions, served_by},
    support::{
        line::Line,
        options,
        sidecar::Sidecar,
        surroundings::{alone, patience, skip},
        wire::{Version, Wire},
    },
};

const MESSAGES: usize = 20;
const SIZE: usize = 200;

/// The sender and the reader.
type Connection = [TcpStream; 2];

/// A system call path from the kernel to the application.
struct Way {
    name: &'static str,
    open: fn(&Wire) -> io::Result<Connection>,
    read: fn(&mut TcpStream, &mut [u8; SIZE]),
    /// How often each message counts at the read: by functions, and by the tracepoint.
    counts: [usize; 2],
}

const WAYS: [Way; 4] = [
    Way { name: "TCP", open: plain, read: by_read, counts: [1, 1] },
    Way { name: "splice", open: plain, read: by_splice, counts: [0, 0] },
    Way { name: "multipath TCP", open: multipath, read: by_read, counts: [1, 0] },
    Way { name: "kTLS", open: encrypted, read: by_read, counts: [0, 0] },
];

fn plain(wire: &Wire) -> io::Result<Connection> {
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)))?;
    let client = wire.left.run(|| TcpStream::connect(listener.local_addr()?))?;
    Ok([client, listener.accept()?.0])
}

/// Opens a socket of Multipath TCP over IPv4.
pub fn multipath_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP))?)
}

fn multipath(wire: &Wire) -> io::Result<Connection> {
    let (listener, client) = (wire.right.run(multipath_socket)?, wire.left.run(multipath_socket)?);
    bind(&listener, &SocketAddr::new(wire.server(), 0))?;
    listen(&listener, 1)?;
    connect(&client, &getsockname(&listener)?)?;
    Ok([client.into(), accept(&listener)?.into()])
}

fn encrypted(wire: &Wire) -> io::Result<Connection> {
    let connection = plain(wire)?;
    let info = libc::tls_crypto_info { version: libc::TLS_1_2_VERSION, cipher_type: libc::TLS_CIPHER_AES_GCM_128 };
    let key = libc::tls12_crypto_info_aes_gcm_128 { info, iv: [1; _], key: [2; _], salt: [3; _], rec_seq: [0; _] };
    for (end, direction) in connection.iter().zip([libc::TLS_TX, libc::TLS_RX]) {
        options::set(end, libc::SOL_TCP, libc::TCP_ULP, b"tls")?;
        options::set(end, libc::SOL_TLS, direction, &key)?;
    }
    Ok(connection)
}

fn by_read(from: &mut TcpStream, buffer: &mut [u8; SIZE]) {
    from.read_exact(buffer).unwrap();
}

fn by_splice(from: &mut TcpStream, buffer: &mut [u8; SIZE]) {
    let (end, start) = pipe().unwrap();
    assert_eq!(splice(from, None, start, None, SIZE, SpliceFlags::empty()).unwrap(), SIZE);
    File::from(end).read_exact(buffer).unwrap();
}

fn count(line: &Line, layer: &str) -> f64 {
    line.total(DURATION, &[("undercurrent.network.layer", layer), ("network.transport", "tcp")])
}

#[test]
fn every_way_out_of_a_connection_counts_as_documented() {
    let Some(_alone) = alone("ways out of a connection") else { return };
    let wire = Wire::loopback(Version::Ipv4);
    let open = |way: &Way| {
        (way.open)(&wire)
            .inspect_err(|error| skip(&format!("{}: this kernel opens no such socket: {error}", way.name)))
            .ok()
    };
    let mut ways: Vec<_> = WAYS.iter().filter_map(|way| Some((way, open(way)?))).collect();
    let ports: Vec<_> = ways.iter().map(|(_, [_, server])| server.local_addr().unwrap().port()).collect();
    let sidecar = Sidecar::configured(&format!("packets: {{filter: {{ports: {ports:?}}}}}\n"));
    let by = usize::from(!on_functions(&sidecar.snapshot(), "socket_read"));
    for (Way { name, read, counts, .. }, [client, server]) in &mut ways {
        server.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
        let before = sidecar.snapshot();
        for number in 0..MESSAGES {
            let (message, mut buffer) = ([number as u8; SIZE], [0xff; SIZE]);
            client.write_all(&message).unwrap();
            read(server, &mut buffer);
            assert_eq!(buffer, message, "{name}");
        }
        let after = sidecar.snapshot();
        let since = |layer| count(&after, layer) - count(&before, layer);
        eprintln!("{name}: {} enqueued, {} read", since("socket_enqueued"), since("socket_read"));
        assert_eq!(since("socket_read"), (MESSAGES * counts[by]) as f64, "{name}");
        if served_by(&after, "socket_enqueued").is_some() {
            assert_eq!(since("socket_enqueued"), MESSAGES as f64, "{name}");
        }
    }
}
