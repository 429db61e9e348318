//! The worker's side: operations on sockets, which may come from other processes.

use std::{
    env, fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    net::{
        AddressFamily, Shutdown, SocketType, bind, ipproto, listen, shutdown, socket,
        sockopt::{set_tcp_user_timeout, socket_acceptconn, socket_type},
    },
};
use serde::{Deserialize, Serialize};

use super::{
    super::{
        support::{
            surroundings::patience,
            tcp::{RTT, information},
        },
        ways::multipath_socket,
    },
    message::{Order, Reply, Turns, connect, receive, send},
};

/// The variable with the number of descriptors that systemd passes (sd_listen_fds(3)).
const PASSED: &str = "LISTEN_FDS";
/// The first passed descriptor.
const FIRST: RawFd = 3;
/// Longer than any message.
const ROOM: usize = 4096;

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    Tcp,
    /// TCP with a socket of Multipath TCP.
    Multipath,
    Udp,
}

impl Transport {
    /// Returns the value of `network.transport`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp | Self::Multipath => "tcp",
            Self::Udp => "udp",
        }
    }
}

enum Socket {
    Datagrams(UdpSocket),
    Listener(TcpListener),
    Connection(TcpStream),
}

impl Socket {
    fn new(descriptor: OwnedFd) -> Self {
        let limit = Some(patience(Duration::from_secs(5)));
        if socket_type(&descriptor).unwrap() == SocketType::DGRAM {
            let socket = UdpSocket::from(descriptor);
            socket.set_read_timeout(limit).unwrap();
            Self::Datagrams(socket)
        } else if socket_acceptconn(&descriptor).unwrap() {
            Self::Listener(descriptor.into())
        } else {
            let stream = TcpStream::from(descriptor);
            stream.set_read_timeout(limit).unwrap();
            // Multipath TCP has the option from 6.0 on.
            let _ = stream.set_nodelay(true);
            Self::Connection(stream)
        }
    }

    fn bind(transport: Transport, address: IpAddr) -> (Self, SocketAddr) {
        match transport {
            Transport::Udp => {
                let socket = UdpSocket::bind((address, 0)).unwrap();
                let address = socket.local_addr().unwrap();
                (Self::new(socket.into()), address)
            }
            Transport::Multipath => {
                let socket = multipath_socket().unwrap();
                bind(&socket, &SocketAddr::new(address, 0)).unwrap();
                listen(&socket, 1).unwrap();
                let socket = TcpListener::from(socket);
                let address = socket.local_addr().unwrap();
                (Self::new(socket.into()), address)
            }
            Transport::Tcp => {
                let socket = TcpListener::bind((address, 0)).unwrap();
                let address = socket.local_addr().unwrap();
                (Self::new(socket.into()), address)
            }
        }
    }

    fn accept(&self) -> Self {
        let Self::Listener(listener) = self else { panic!("it does not listen") };
        Self::new(listener.accept().unwrap().0.into())
    }

    fn answer(&self) {
        let mut message = [0; ROOM];
        match self {
            Self::Datagrams(socket) => {
                let (length, from) = socket.recv_from(&mut message).unwrap();
                socket.send_to(&message[..length], from).unwrap();
            }
            Self::Connection(stream) => {
                let length = (&*stream).read(&mut message).unwrap();
                (&*stream).write_all(&message[..length]).unwrap();
            }
            Self::Listener(_) => panic!("a listening socket has no messages"),
        }
    }

    /// Answers a message, and returns TCP's round-trip time of the connection at the read.
    fn time(&self) -> u32 {
        let Self::Connection(stream) = self else { panic!("it is no connection") };
        let mut message = [0; ROOM];
        stream.peek(&mut message).unwrap();
        let length = (&*stream).read(&mut message).unwrap();
        let time = information(stream, RTT);
        (&*stream).write_all(&message[..length]).unwrap();
        time
    }
}

impl Socket {
    /// Takes a turn, and returns its time in nanoseconds.
    fn turn(&self, turns: Turns) -> u64 {
        let Self::Connection(stream) = self else { panic!("it is no connection") };
        let mut message = vec![0; turns.reads];
        let began = if turns.asks {
            let began = Instant::now();
            turns.write(stream);
            (&*stream).read_exact(&mut message).unwrap();
            began
        } else {
            (&*stream).read_exact(&mut message).unwrap();
            Instant::now()
        };
        thread::sleep(turns.delay);
        let time = began.elapsed();
        if !turns.asks {
            turns.write(stream);
        }
        time.as_nanos().try_into().unwrap()
    }
}

impl Turns {
    fn write(self, mut stream: &TcpStream) {
        for piece in 0..self.pieces {
            if piece > 0 {
                thread::sleep(self.pause);
            }
            stream.write_all(&vec![0x55; self.writes]).unwrap();
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Datagrams(socket) => socket.as_fd(),
            Self::Listener(socket) => socket.as_fd(),
            Self::Connection(socket) => socket.as_fd(),
        }
    }
}

/// Executes orders until the test closes the connection.
pub fn serve(path: &Path) {
    let asked = connect(path);
    let (mut sockets, mut raw) = (passed(), Vec::new());
    while let Some((order, descriptor)) = receive(&asked) {
        let reply = match order {
            Order::Join(cgroups) => {
                cgroups.iter().for_each(|cgroup| fs::write(cgroup.join("cgroup.procs"), "0").unwrap());
                Reply::Done
            }
            Order::Bind(transport, address) => {
                let (socket, address) = Socket::bind(transport, address);
                sockets.push(socket);
                Reply::Bound(sockets.len() - 1, address)
            }
            Order::Accept(listener) => add(&mut sockets, |sockets| sockets[listener].accept()),
            Order::Take => add(&mut sockets, |_| Socket::new(descriptor.unwrap())),
            Order::Answer(socket, messages) => {
                (0..messages).for_each(|_| sockets[socket].answer());
                Reply::Done
            }
            Order::Time(socket, messages) => Reply::Times((0..messages).map(|_| sockets[socket].time()).collect()),
            Order::Overhear(address) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                raw.push(socket(family, SocketType::RAW, Some(ipproto::TCP)).unwrap());
                bind(raw.last().unwrap(), &SocketAddr::new(address, 0)).unwrap();
                Reply::Done
            }
            Order::Connect(address) => {
                let stream = TcpStream::connect(address).unwrap();
                let own = stream.local_addr().unwrap();
                sockets.push(Socket::new(stream.into()));
                Reply::Bound(sockets.len() - 1, own)
            }
            Order::Refused(address) => {
                assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
                Reply::Done
            }
            Order::Unanswered(address, limit) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let attempt = socket(family, SocketType::STREAM, None).unwrap();
                set_tcp_user_timeout(&attempt, milliseconds(limit)).unwrap();
                assert_eq!(rustix::net::connect(&attempt, &address), Err(Errno::TIMEDOUT));
                Reply::Done
            }
            Order::Abandoned(socket, limit) => {
                let Socket::Connection(stream) = &sockets[socket] else { panic!("it is no connection") };
                set_tcp_user_timeout(stream, milliseconds(limit)).unwrap();
                let mut stream = stream;
                stream.write_all(&[0x55]).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
                Reply::Done
            }
            Order::Converse(socket, turns) => {
                Reply::Turns((0..turns.count).map(|_| sockets[socket].turn(turns)).collect())
            }
            Order::Finish(socket) => {
                shutdown(&sockets[socket], Shutdown::Write).unwrap();
                Reply::Done
            }
            Order::Close(socket) => {
                // The other indices stay valid.
                sockets[socket] = Socket::bind(Transport::Udp, Ipv4Addr::LOCALHOST.into()).0;
                Reply::Done
            }
            Order::Give(socket) => {
                send(&asked, &Reply::Done, Some(sockets[socket].as_fd()));
                continue;
            }
            Order::Activate => activate(&sockets),
        };
        send(&asked, &reply, None);
    }
}

fn milliseconds(time: Duration) -> u32 {
    time.as_millis().try_into().unwrap()
}

fn add(sockets: &mut Vec<Socket>, socket: impl FnOnce(&[Socket]) -> Socket) -> Reply {
    let socket = socket(sockets);
    sockets.push(socket);
    Reply::Socket(sockets.len() - 1)
}

/// Returns the sockets that this process was started with.
fn passed() -> Vec<Socket> {
    let count = env::var(PASSED).map_or(0, |count| count.parse().unwrap());
    // SAFETY: the variable states that this process owns these descriptors.
    (FIRST..FIRST + count).map(|descriptor| Socket::new(unsafe { OwnedFd::from_raw_fd(descriptor) })).collect()
}

/// Executes the worker again, and passes all sockets to the new process.
fn activate(sockets: &[Socket]) -> ! {
    let count = RawFd::try_from(sockets.len()).unwrap();
    // Moves the descriptors out of the range of the passed ones.
    let high = |socket: &Socket| fcntl_dupfd_cloexec(socket, FIRST + count).unwrap();
    let sockets: Vec<OwnedFd> = sockets.iter().map(high).collect();
    for (socket, number) in sockets.iter().zip(FIRST..) {
        // SAFETY: the replaced descriptor is not used any more, because this process executes another program.
        assert_eq!(unsafe { libc::dup2(socket.as_raw_fd(), number) }, number);
    }
    let failed =
        Command::new(env::current_exe().unwrap()).args(env::args_os().skip(1)).env(PASSED, count.to_string()).exec();
    panic!("it cannot become another process: {failed}");
}
