//! nginx on loopback, with one file.

use std::{
    fs,
    io::Read as _,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use xtask_common::process;

use super::load::{self, Figures, Service};

/// Size of the file in bytes.
const SIZE: usize = 10_000;
/// Timeout for the start in a guest.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. It ends on drop.
pub struct Server {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Server {
    /// Starts the server on a free port.
    pub fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for nginx")?;
        let address = free()?;
        fs::write(folder.path().join("file"), vec![b'x'; SIZE])?;
        let path = folder.path().join("nginx.conf");
        fs::write(&path, configuration(&folder, address))?;
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(&path).arg("-p").arg(folder.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start nginx")?;
        process::wait_for("nginx to listen", PATIENCE, || {
            if child.try_wait()?.is_some() {
                let mut log = String::new();
                child.stderr.take().context("nginx has no standard error")?.read_to_string(&mut log)?;
                bail!("nginx exited: {log}");
            }
            Ok(TcpStream::connect(address).ok())
        })?;
        Ok(Self { child, address, _folder: folder })
    }
}

impl Service for Server {
    fn describe(&self) -> String {
        format!("nginx, a file of {SIZE} bytes, wrk on one thread")
    }

    fn load(&self, connections: usize, seconds: u64) -> anyhow::Result<Figures> {
        load::wrk(&format!("http://{}/file", self.address), connections, seconds)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = process::end(&mut self.child, PATIENCE);
    }
}

/// Returns a free address of loopback.
pub fn free() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?.local_addr()?)
}

/// Returns the configuration: one worker, unlimited keep-alive and no access log.
fn configuration(folder: &TempDir, address: SocketAddr) -> String {
    let folder = folder.path().display();
    format!(
        "daemon off; user root; worker_processes 1; pid {folder}/pid; error_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; sendfile on; tcp_nopush on;\n\
         client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};\n\
         uwsgi_temp_path {folder}; scgi_temp_path {folder};\n\
         server {{ listen {address}; root {folder}; }} }}\n"
    )
}
