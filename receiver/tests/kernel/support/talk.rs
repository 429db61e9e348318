//! Exchanges one message at a time: no packets merge, none is dropped, and every read returns one message.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    thread,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    surroundings::patience,
    tcp::{DATA_SEGMENTS_IN, information},
    wire::Wire,
};

/// Connected sockets at both ends of a wire. They stay open until the value is dropped, so no FIN is queued
/// before.
pub struct Talk {
    client: TcpStream,
    server: TcpStream,
    left: UdpSocket,
    right: UdpSocket,
    /// Reads of TCP sockets that returned data.
    pub tcp_reads: u64,
    /// Reads of UDP sockets that returned data.
    pub udp_reads: u64,
}

impl Talk {
    /// Opens the sockets.
    pub fn open(wire: &Wire) -> Self {
        let (client_address, server_address) = (wire.client(), wire.server());
        let listener = wire.right.run(|| TcpListener::bind((server_address, 0)).unwrap());
        let port = listener.local_addr().unwrap();
        let client = wire.left.run(|| TcpStream::connect_timeout(&port, patience(Duration::from_secs(2))).unwrap());
        let (server, _) = listener.accept().unwrap();
        let right = wire.right.run(|| UdpSocket::bind((server_address, 0)).unwrap());
        let left = wire.left.run(|| UdpSocket::bind((client_address, 0)).unwrap());
        left.connect(right.local_addr().unwrap()).unwrap();
        right.connect(left.local_addr().unwrap()).unwrap();
        let limit = Some(patience(Duration::from_secs(2)));
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(limit).unwrap();
        }
        for socket in [&left, &right] {
            socket.set_read_timeout(limit).unwrap();
        }
        Self { client, server, left, right, tcp_reads: 0, udp_reads: 0 }
    }

    /// Returns the receiving ports of both protocols at both ends.
    pub fn ports(&self) -> [u16; 4] {
        let streams = [&self.client, &self.server].map(|stream| stream.local_addr());
        let sockets = [&self.left, &self.right].map(|socket| socket.local_addr());
        let [client, server] = streams.map(|address| address.unwrap().port());
        let [left, right] = sockets.map(|address| address.unwrap().port());
        [client, server, left, right]
    }

    /// Exchanges messages over TCP, with a reply to each.
    pub fn tcp(&mut self, messages: usize, size: usize) {
        self.tcp_read_after(Duration::ZERO, messages, size);
    }

    /// Exchanges messages over TCP, and leaves each in the queue for at least `wait`.
    pub fn tcp_read_after(&mut self, wait: Duration, messages: usize, size: usize) {
        let (payload, mut buffer) = (vec![0x55; size], vec![0; size]);
        for _ in 0..messages {
            for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
                (&*from).write_all(&payload).unwrap();
                linger(to, wait);
                assert_eq!((&*to).read(&mut buffer).unwrap(), size, "a message came in parts");
                self.tcp_reads += 1;
            }
        }
    }

    /// Exchanges messages over UDP, with a reply to each.
    pub fn udp(&mut self, messages: usize, size: usize) {
        self.udp_read_after(Duration::ZERO, messages, size);
    }

    /// Exchanges messages over UDP, and leaves each in the queue for at least `wait`.
    pub fn udp_read_after(&mut self, wait: Duration, messages: usize, size: usize) {
        let (payload, mut buffer) = (vec![0x55; size], vec![0; size]);
        for _ in 0..messages {
            for (from, to) in [(&self.left, &self.right), (&self.right, &self.left)] {
                from.send(&payload).unwrap();
                linger(to, wait);
                assert_eq!(to.recv(&mut buffer).unwrap(), size);
                self.udp_reads += 1;
            }
        }
    }

    /// Returns the kernel's count of segments with data for the two TCP sockets.
    pub fn data_segments(&self) -> u64 {
        [&self.client, &self.server].map(|stream| u64::from(information(stream, DATA_SEGMENTS_IN))).into_iter().sum()
    }
}

/// Leaves data in the socket's queue for a time. Waits for the data until the read's timeout.
fn linger(socket: &impl AsFd, wait: Duration) {
    if wait.is_zero() {
        return;
    }
    let mut readable = [PollFd::new(socket, PollFlags::IN)];
    let limit = Timespec::try_from(patience(Duration::from_secs(2))).unwrap();
    assert_eq!(poll(&mut readable, Some(&limit)).unwrap(), 1, "no message came");
    thread::sleep(wait);
}
