//! The client, which runs in the test's process outside of the workloads.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use rustix::net::connect;

use super::{
    super::{
        support::{surroundings::patience, wire::Wire},
        ways::multipath_socket,
    },
    sockets::Transport,
};

/// The content of every message.
const MESSAGE: [u8; 100] = [0x55; 100];

/// A socket that waits for each reply before the next request, so that no packets merge.
pub enum Client {
    Datagrams(UdpSocket),
    Connection(TcpStream),
}

impl Client {
    /// Connects from the left end of a wire.
    pub fn connect(wire: &Wire, transport: Transport, to: SocketAddr) -> Self {
        let limit = patience(Duration::from_secs(5));
        match transport {
            Transport::Udp => {
                let socket = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
                socket.connect(to).unwrap();
                socket.set_read_timeout(Some(limit)).unwrap();
                Self::Datagrams(socket)
            }
            Transport::Multipath => {
                let socket = wire.left.run(multipath_socket).unwrap();
                connect(&socket, &to).unwrap();
                let stream = TcpStream::from(socket);
                stream.set_read_timeout(Some(limit)).unwrap();
                let _ = stream.set_nodelay(true);
                Self::Connection(stream)
            }
            Transport::Tcp => {
                let stream = wire.left.run(|| TcpStream::connect_timeout(&to, limit).unwrap());
                stream.set_read_timeout(Some(limit)).unwrap();
                stream.set_nodelay(true).unwrap();
                Self::Connection(stream)
            }
        }
    }

    /// Sends a request.
    pub fn say(&self) {
        let said = match self {
            Self::Datagrams(socket) => socket.send(&MESSAGE),
            Self::Connection(stream) => (&*stream).write(&MESSAGE),
        };
        assert_eq!(said.unwrap(), MESSAGE.len());
    }

    /// Receives a reply.
    pub fn hear(&self) {
        let mut answer = [0; MESSAGE.len()];
        let heard = match self {
            Self::Datagrams(socket) => socket.recv(&mut answer),
            Self::Connection(stream) => (&*stream).read(&mut answer),
        };
        assert_eq!(heard.unwrap(), MESSAGE.len());
    }

    /// Sends requests, and receives the reply to each.
    pub fn ask(&self, times: usize) {
        for _ in 0..times {
            self.say();
            self.hear();
        }
    }
}
