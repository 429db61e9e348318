//! The programs in the containers of the picture.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use xtask_common::process;

/// Port of the servers.
const PORT: u16 = 8080;
/// Payload of a message.
const MESSAGE: [u8; 200] = [0x55; 200];
/// Connections of the clients to the web server, and the pause between two requests of a connection.
const CONNECTIONS: usize = 4;
const PAUSE: Duration = Duration::from_millis(2);
/// CPU time of the web server for a request.
const WORK: Duration = Duration::from_micros(100);
/// Time between two messages of the shop.
const PERIOD: Duration = Duration::from_millis(5);
/// Time between two reads of the orders.
const BATCH: Duration = Duration::from_millis(80);
/// Timeout for the start of a server.
const START: Duration = Duration::from_secs(20);
/// Upper limit of a container's lifetime.
const LONGEST: Duration = Duration::from_secs(120);

/// The role of a container.
#[derive(clap::Subcommand)]
pub enum Role {
    /// Answer requests, each after some CPU time.
    Web,
    /// Send requests over several connections.
    Clients { server: IpAddr },
    /// Read the messages of the shop in batches. Between two batches, messages wait in the socket.
    Orders,
    /// Send messages to the orders.
    Shop { server: IpAddr },
}

/// Runs a role until SIGTERM, an error, or the end of its lifetime.
pub fn run(role: &Role) -> anyhow::Result<()> {
    // The init process of a container ignores SIGTERM unless it has a handler.
    let end = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGTERM, 0, end)?;
    let (failed, failure) = mpsc::channel();
    let start = |task: fn(IpAddr) -> anyhow::Result<()>, peer: IpAddr| {
        let failed = failed.clone();
        thread::spawn(move || failed.send(task(peer)));
    };
    match *role {
        Role::Web => start(|_| serve(answer), Ipv4Addr::UNSPECIFIED.into()),
        Role::Orders => start(|_| serve(read_batches), Ipv4Addr::UNSPECIFIED.into()),
        Role::Clients { server } => (0..CONNECTIONS).for_each(|_| start(request, server)),
        Role::Shop { server } => start(send, server),
    }
    failure.recv_timeout(LONGEST).unwrap_or(Ok(()))
}

/// Handles every connection in a separate thread.
fn serve(handle: fn(TcpStream) -> std::io::Result<()>) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    loop {
        let (connection, _) = listener.accept()?;
        thread::spawn(move || handle(connection));
    }
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; MESSAGE.len()];
    connection.set_nodelay(true)?;
    loop {
        connection.read_exact(&mut buffer)?;
        let start = Instant::now();
        while start.elapsed() < WORK {
            std::hint::spin_loop();
        }
        connection.write_all(&buffer)?;
    }
}

fn read_batches(mut connection: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1 << 16];
    while connection.read(&mut buffer)? > 0 {
        thread::sleep(BATCH);
    }
    Ok(())
}

fn connect(server: IpAddr) -> anyhow::Result<TcpStream> {
    let connection = process::wait_for("the server", START, || Ok(TcpStream::connect((server, PORT)).ok()))?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

fn request(server: IpAddr) -> anyhow::Result<()> {
    let mut connection = connect(server)?;
    let mut buffer = [0; MESSAGE.len()];
    loop {
        connection.write_all(&MESSAGE)?;
        connection.read_exact(&mut buffer).context("the server did not answer")?;
        thread::sleep(PAUSE);
    }
}

fn send(server: IpAddr) -> anyhow::Result<()> {
    let mut connection = connect(server)?;
    loop {
        connection.write_all(&MESSAGE)?;
        thread::sleep(PERIOD);
    }
}
