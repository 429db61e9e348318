//! Load on a server, and its results.

use std::process::Command;

use anyhow::Context as _;
use xtask_common::machine;

/// A running server with a program that loads it.
pub trait Service {
    /// Returns what is loaded, and how.
    fn describe(&self) -> String;

    /// Loads the server for some seconds by a number of concurrent connections.
    fn load(&self, connections: usize, seconds: u64) -> anyhow::Result<Figures>;
}

/// The load on a server.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    pub service: &'a dyn Service,
    /// Number of concurrent connections.
    pub connections: usize,
    /// Duration in seconds.
    pub seconds: u64,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Requests per second.
    pub rate: f64,
    /// 99th percentile of the latency in seconds.
    pub p99: f64,
}

impl Load<'_> {
    /// Loads the server.
    pub fn run(&self) -> anyhow::Result<Figures> {
        self.service.load(self.connections, self.seconds)
    }
}

/// Runs wrk, which requests a URL.
pub fn wrk(url: &str, connections: usize, seconds: u64) -> anyhow::Result<Figures> {
    let mut command = Command::new("wrk");
    command.args(["--threads", "1", "--connections", &connections.to_string(), "--latency"]);
    command.args(["--duration", &format!("{seconds}s"), "--timeout", "20s", url]);
    let printed = machine::output(&mut command)?;
    figures(&printed).with_context(|| format!("unexpected output of wrk:\n{printed}"))
}

fn figures(printed: &str) -> Option<Figures> {
    let after = |label: &str| printed.lines().find_map(|line| line.trim().strip_prefix(label).map(str::trim));
    Some(Figures { rate: after("Requests/sec:")?.parse().ok()?, p99: seconds(after("99%")?)? })
}

/// Parses a time in wrk's format and returns seconds.
fn seconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    units.iter().find_map(|(unit, scale)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "Running 5s test @ http://127.0.0.1:8080/file
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.20ms  310.10us   9.99ms   91.20%
    Req/Sec    41.10k     1.20k   43.00k    70.00%
  Latency Distribution
     50%    1.10ms
     75%    1.31ms
     90%    1.50ms
     99%    2.25ms
  204500 requests in 5.00s, 1.95GB read
Requests/sec:  40900.12
Transfer/sec:    400.00MB
";

    #[test]
    fn rates_and_quantiles_are_read() {
        assert_eq!(figures(PRINTED), Some(Figures { rate: 40_900.12, p99: 2.25 * 1e-3 }));
        assert_eq!(figures("unable to connect"), None);
    }

    #[test]
    fn times_have_units() {
        assert_eq!(["310.10us", "1.50s", "2.00m"].map(seconds), [Some(310.1e-6), Some(1.5), Some(120.0)]);
        assert_eq!(["", "5", "nan h"].map(seconds), [None; 3]);
    }
}
