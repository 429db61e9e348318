//! An API server of Kubernetes with one pod of a deployment, for clients that list and watch.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use anyhow::Context as _;
use serde_json::{Value, json};

/// The pod's identity.
pub const UID: &str = "1f0c5a4e-2b7d-4c1e-9d5b-0a4f7c2e8b11";
/// The id of the pod's container.
pub const CONTAINER: &str = "7d1cf1e5b6a24f1c9d0e3b5a8c7f6e4d2b1a09f8e7d6c5b4a3928170f6e5d4c3";
/// The pod's names, by attribute.
pub const NAMES: [(&str, &str); 3] =
    [("k8s.namespace.name", "shop"), ("k8s.pod.name", "orders-7d9c5bd6f-abcde"), ("k8s.deployment.name", "orders")];

/// The resources that have objects: the last part of the path, and the kind.
const KINDS: [(&str, &str); 4] =
    [("pods", "Pod"), ("namespaces", "Namespace"), ("nodes", "Node"), ("replicasets", "ReplicaSet")];

/// Starts the server, which runs until this process ends. Returns a configuration of clients.
pub fn serve() -> anyhow::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // A client that ends closes its connections.
            thread::spawn(move || answer_all(connection).ok());
        }
    });
    Ok(configuration(address))
}

fn configuration(address: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters: [{{name: test, cluster: {{server: 'http://{address}'}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\nusers: [{{name: test, user: {{}}}}]\n"
    )
}

/// Answers the requests of a connection.
fn answer_all(mut connection: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (resource, query) = path.split_once('?').unwrap_or((path, ""));
        if query.contains("sendInitialEvents=true") {
            // The client then lists, and watches from there.
            respond(&mut connection, "400 Bad Request", &json!({"kind": "Status", "apiVersion": "v1", "code": 400}))?;
        } else if query.contains("watch=") {
            connection.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            )?;
        } else {
            respond(&mut connection, "200 OK", &list(resource))?;
        }
    }
}

fn respond(connection: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the list of the objects of a resource.
fn list(resource: &str) -> Value {
    let of = resource.rsplit('/').next().unwrap_or_default();
    let kind = KINDS.iter().find(|(name, _)| *name == of).map_or("Status", |(_, kind)| kind);
    let [(_, namespace), (_, pod), (_, deployment)] = NAMES;
    let replicas = "orders-7d9c5bd6f";
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
    let items = match of {
        "pods" => json!([{
            "metadata": {"name": pod, "namespace": namespace, "uid": UID, "ownerReferences": owner("ReplicaSet", replicas)},
            "spec": {"nodeName": "node-1", "containers": [{"name": "orders", "image": "orders:1"}]},
            "status": {
                "podIP": "10.0.0.7",
                "containerStatuses": [{
                    "name": "orders", "image": "orders:1", "imageID": "", "ready": true, "restartCount": 0,
                    "containerID": format!("containerd://{CONTAINER}"), "state": {"running": {}},
                }],
            },
        }]),
        "replicasets" => json!([{
            "metadata": {"name": replicas, "namespace": namespace, "uid": replicas, "ownerReferences": owner("Deployment", deployment)},
        }]),
        _ => json!([]),
    };
    let version = if of == "replicasets" { "apps/v1" } else { "v1" };
    json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})
}
