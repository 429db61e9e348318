//! Redis on loopback, with small requests.

use std::{
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use xtask_common::{machine, process};

use super::{
    load::{Figures, Service},
    server::{PATIENCE, free},
};

/// Requests that measure the rate before a run, since redis-benchmark takes a number of requests and no time.
const TRIAL: u64 = 20_000;
/// Bytes of the value that is read.
const SIZE: usize = 3;

/// A running server. It ends on drop.
pub struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    /// Starts the server on a free port.
    pub fn start() -> anyhow::Result<Self> {
        let address = free()?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
        // It writes nothing to the disk.
        command.args(["--save", "", "--appendonly", "no"]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().context("cannot start redis-server")?;
        process::wait_for("redis-server to listen", PATIENCE, || {
            anyhow::ensure!(child.try_wait()?.is_none(), "redis-server exited");
            Ok(TcpStream::connect(address).ok())
        })?;
        Ok(Self { child, address })
    }

    /// Sends a number of requests.
    fn request(&self, connections: usize, requests: u64) -> anyhow::Result<Figures> {
        let mut command = Command::new("redis-benchmark");
        command.args([
            "-h",
            &self.address.ip().to_string(),
            "-p",
            &self.address.port().to_string(),
            "-t",
            "get",
            "--csv",
        ]);
        command.args(["-c", &connections.to_string(), "-n", &requests.to_string(), "-d", &SIZE.to_string()]);
        let printed = machine::output(&mut command)?;
        figures(&printed).with_context(|| format!("unexpected output of redis-benchmark:\n{printed}"))
    }
}

impl Service for Redis {
    fn describe(&self) -> String {
        format!("Redis, GET of {SIZE} bytes, redis-benchmark on one thread")
    }

    fn load(&self, connections: usize, seconds: u64) -> anyhow::Result<Figures> {
        let rate = self.request(connections, TRIAL)?.rate;
        self.request(connections, (rate * seconds as f64) as u64)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = process::end(&mut self.child, PATIENCE);
    }
}

/// Reads the columns of redis-benchmark 7: the test, requests per second, and four latencies in milliseconds before the 99th percentile.
fn figures(printed: &str) -> Option<Figures> {
    let line = printed.lines().find_map(|line| line.strip_prefix("\"GET\","))?;
    let mut columns = line.split(',').map(|column| column.trim_matches('"').parse::<f64>().ok());
    let rate = columns.next()??;
    let p99 = columns.nth(4)?? * 1e-3;
    Some(Figures { rate, p99 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_quantiles_are_read() {
        let head = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";
        let printed =
            format!("{head}\n\"GET\",\"85470.09\",\"0.304\",\"0.088\",\"0.303\",\"0.351\",\"0.500\",\"1.103\"\n");
        assert_eq!(figures(&printed), Some(Figures { rate: 85_470.09, p99: 0.0005 }));
        assert_eq!(figures(head), None);
    }
}
