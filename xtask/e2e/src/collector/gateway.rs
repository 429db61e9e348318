//! Collectors with otel-config/gateway.yaml.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use xtask_common::machine;

use super::built;
use crate::{
    ports::{free_address, retry},
    server::{READY, Server, folder},
};

/// The list of the components of the gateway.
pub const MANIFEST: &str = include_str!("../../collector/gateway.yaml");
/// The configuration of a gateway, and the one that drops internal series.
pub const FILES: [&str; 2] = ["otel-config/gateway.yaml", "otel-config/without-internal.yaml"];

/// The environment of gateways.
pub struct Surroundings<'a> {
    /// The URL of the backend of all signals, for OTLP over HTTP.
    pub backend: &'a str,
    /// A configuration of clients of Kubernetes.
    pub kubernetes: &'a Path,
    /// The percentage of other traces that is kept.
    pub kept: u32,
}

/// A replica of the gateway. It ends on drop.
pub struct Gateway {
    server: Server,
    grpc: SocketAddr,
    http: SocketAddr,
}

/// Returns the path of the binary in the cache, and builds it if it is missing.
fn path() -> anyhow::Result<PathBuf> {
    built("gateway", MANIFEST)
}

/// Checks that the collector accepts the files: the first alone, and all together.
pub fn validate() -> anyhow::Result<()> {
    for files in [&FILES[..1], &FILES[..]] {
        let mut command = Command::new(path()?);
        machine::output(configured(command.arg("validate").env_clear(), files))?;
    }
    Ok(())
}

fn configured<'a>(command: &'a mut Command, files: &[&str]) -> &'a mut Command {
    let paths = files.iter().map(|file| machine::workspace().join(file));
    paths.fold(command, |command, path| command.arg("--config").arg(path))
}

impl Gateway {
    /// Starts a replica whose port for other replicas has this address, and waits until it is ready. `localhost` resolves to every replica.
    pub fn start(balanced: SocketAddr, surroundings: &Surroundings<'_>) -> anyhow::Result<Self> {
        let Surroundings { backend, kubernetes, kept } = surroundings;
        retry(|| {
            let (grpc, http) = (free_address()?, free_address()?);
            let settings = [
                ("receivers.otlp.protocols.grpc.endpoint", grpc.to_string()),
                ("receivers.otlp.protocols.http.endpoint", http.to_string()),
                ("receivers.otlp/balanced.protocols.grpc.endpoint", balanced.to_string()),
                ("exporters.loadbalancing.resolver.dns.port", balanced.port().to_string()),
                ("extensions.health_check.endpoint", free_address()?.to_string()),
                ("processors.k8s_attributes.auth_type", "kubeConfig".to_owned()),
                ("service.telemetry.metrics.level", "none".to_owned()),
            ];
            let arguments = |command: &mut Command| {
                configured(command, &FILES).args(settings.map(|(key, value)| format!("--set={key}='{value}'")));
            };
            let server = Server::start(
                "the gateway",
                &path()?,
                folder()?,
                |command| {
                    arguments(command);
                    for signal in ["METRICS", "TRACES", "LOGS"] {
                        command.env(format!("{signal}_OTLP_ENDPOINT"), backend);
                    }
                    command.env("KUBECONFIG", kubernetes).env("KEPT_TRACES", kept.to_string())
                },
                |log| log.contains(READY),
            )?;
            Ok(Self { server, grpc, http })
        })
    }

    /// Returns the endpoint for OTLP over HTTP, in the format of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Returns the address for OTLP over gRPC.
    pub const fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        self.server.log()
    }
}
