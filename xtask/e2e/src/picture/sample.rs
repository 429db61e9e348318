//! The live table in docs/reading.md: a host that exchanges messages with itself.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use xtask_common::machine;

/// Start and end of the table in the page.
const TABLE: (&str, &str) = ("```text\nundercurrent ", "```\n");
/// Time between two messages of a socket: 200 messages a second.
const PERIOD: Duration = Duration::from_millis(5);
/// Payload of a message.
const MESSAGE: [u8; 200] = [0x55; 200];
/// All figures belong to the node, so that the table has the same rows on every host.
const SETTINGS: &str = "workloads: {enabled: false}\n";
/// Ends after the second table, which covers a whole interval.
const OPTIONS: [&str; 7] = ["run", "--output", "table", "--interval", "10s", "--duration", "20500ms"];

/// Runs the sidecar beside traffic over loopback, and replaces the table in the page by its second table.
pub fn write(sidecar: &Path, page: &Path) -> anyhow::Result<()> {
    let ended = AtomicBool::new(false);
    let shown = thread::scope(|scope| {
        let ended = &ended;
        let addresses = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let exchanges = addresses.map(|address| {
            [
                scope.spawn(move || exchange_segments(address, ended)),
                scope.spawn(move || exchange_datagrams(address, ended)),
            ]
        });
        let shown = tables(sidecar);
        ended.store(true, Ordering::Relaxed);
        for exchange in exchanges.into_iter().flatten() {
            exchange.join().map_err(|_| anyhow!("an exchange panicked"))??;
        }
        shown
    })?;
    let table = shown.split("\n\nundercurrent ").nth(1).context("the sidecar wrote one table")?;
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    fs::write(page, replaced(&text, table.trim_end())?).with_context(|| format!("cannot write {}", page.display()))
}

fn tables(sidecar: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir().context("cannot create a folder for the settings")?;
    let config = folder.path().join("config.yaml");
    fs::write(&config, SETTINGS)?;
    machine::output(Command::new(sidecar).args(OPTIONS).arg("--config").arg(config))
}

/// Replaces the table of a page. The text of the new table begins after the word `undercurrent`.
fn replaced(page: &str, table: &str) -> anyhow::Result<String> {
    let (before, after) = page.split_once(TABLE.0).context("the page has no table")?;
    let (_, after) = after.split_once(TABLE.1).context("the page's table has no end")?;
    Ok([before, TABLE.0, table, "\n", TABLE.1, after].concat())
}

fn exchange_segments(address: IpAddr, ended: &AtomicBool) -> anyhow::Result<()> {
    let listener = TcpListener::bind((address, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    sender.set_nodelay(true)?;
    let (mut receiver, _) = listener.accept()?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = [0; MESSAGE.len()];
            while receiver.read(&mut buffer).is_ok_and(|length| length > 0) {}
        });
        while !ended.load(Ordering::Relaxed) {
            sender.write_all(&MESSAGE)?;
            thread::sleep(PERIOD);
        }
        // The receiver ends with the connection.
        sender.shutdown(Shutdown::Both).context("cannot end the connection")
    })
}

fn exchange_datagrams(address: IpAddr, ended: &AtomicBool) -> anyhow::Result<()> {
    let receiver = UdpSocket::bind(SocketAddr::new(address, 0))?;
    let sender = UdpSocket::bind(SocketAddr::new(address, 0))?;
    let mut buffer = MESSAGE;
    while !ended.load(Ordering::Relaxed) {
        sender.send_to(&MESSAGE, receiver.local_addr()?)?;
        receiver.recv(&mut buffer)?;
        thread::sleep(PERIOD);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_page_is_replaced() {
        let page = "a\n\n```text\nundercurrent 0.0.1 old\nrow\n```\n\nb\n\n```text\nother\n```\n";
        let expected = "a\n\n```text\nundercurrent 0.1.0 new\n```\n\nb\n\n```text\nother\n```\n";
        assert_eq!(replaced(page, "0.1.0 new").unwrap(), expected);
        assert!(replaced("no table", "").is_err());
    }
}
