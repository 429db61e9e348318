//! The Helm chart has the objects of examples/kubernetes, and refuses wrong values. No cluster is involved.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};
use xtask_common::machine;
use xtask_e2e::helm::HELM;

const CHART: &str = "charts/undercurrent";
const MANIFEST: &str = "examples/kubernetes/undercurrent.yaml";
/// The release of Kubernetes that templates are for: without a cluster, Helm assumes an old one.
const KUBERNETES: &str = "1.30.0";
/// Values that the chart refuses, and the key that Helm names.
const REFUSED: [(&str, &str); 5] = [
    ("endpoint=collector:4317", "endpoint"),
    ("endpiont=http://collector:4317", "endpiont"),
    ("restricted=maybe", "restricted"),
    ("config.health.listen=here", "listen"),
    ("image.repository=", "repository"),
];
/// Values with every option.
const OPTIONS: [&str; 9] = [
    "restricted=true",
    "podNames=false",
    "clusterName=production",
    "endpoint=https://collector:4317",
    "environmentSecret=undercurrent-headers",
    "tls.secret=undercurrent-tls",
    "tls.clientCertificate=true",
    "environment.RUST_LOG=info",
    "config.health=null",
];
/// The capabilities with `restricted`.
const RESTRICTED: [&str; 4] = ["BPF", "PERFMON", "NET_ADMIN", "SYSLOG"];

/// Objects by kind.
type Objects = BTreeMap<String, Value>;

/// Runs the scenario.
pub fn run() -> anyhow::Result<()> {
    let helm = HELM.path()?;
    machine::output(&mut helm_with(&helm, &["lint", "--strict"], &[]))?;
    let (manifest, chart) = (manifest()?, template(&helm, &[])?);
    ensure!(manifest == chart, "{MANIFEST} has\n{manifest:#?}\nand the chart\n{chart:#?}");
    println!("e2e chart: {} objects are those of {MANIFEST}", chart.len());
    with_options(&template(&helm, &OPTIONS)?)?;
    println!("e2e chart: {} options have their effects", OPTIONS.len());
    for (value, key) in REFUSED {
        let output = helm_with(&helm, &["template", "--kube-version", KUBERNETES], &[value]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains(key), "--set {value}: {said}");
    }
    println!("e2e chart: {} wrong values are refused", REFUSED.len());
    Ok(())
}

/// Returns a call of Helm for the chart with values.
fn helm_with(helm: &PathBuf, arguments: &[&str], values: &[&str]) -> Command {
    let mut command = Command::new(helm);
    command.args(arguments).arg(machine::workspace().join(CHART));
    for value in values {
        command.args(["--set", value]);
    }
    command
}

/// Returns the objects of the chart.
fn template(helm: &PathBuf, values: &[&str]) -> anyhow::Result<Objects> {
    let arguments = ["template", "undercurrent", "--namespace", "monitoring", "--kube-version", KUBERNETES];
    objects(&machine::output(&mut helm_with(helm, &arguments, values))?)
}

fn manifest() -> anyhow::Result<Objects> {
    objects(
        &fs::read_to_string(machine::workspace().join(MANIFEST)).with_context(|| format!("cannot read {MANIFEST}"))?,
    )
}

/// Parses YAML documents. Leaves out labels, which Helm adds, and parses the configuration, whose comments differ.
fn objects(text: &str) -> anyhow::Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("not YAML")?;
    let mut objects = Objects::new();
    for mut object in documents {
        let kind = object["kind"].as_str().context("an object without a kind")?.to_owned();
        without(&mut object, "/metadata", "labels");
        without(&mut object, "/spec", "selector");
        without(&mut object, "/spec/template", "metadata");
        if let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
            parse_configuration(data)?;
        }
        ensure!(objects.insert(kind.clone(), object).is_none(), "several objects of the kind {kind}");
    }
    Ok(objects)
}

fn without(object: &mut Value, parent: &str, key: &str) {
    if let Some(members) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        members.remove(key);
    }
}

fn parse_configuration(data: &mut Map<String, Value>) -> anyhow::Result<()> {
    for value in data.values_mut() {
        *value = serde_saphyr::from_str(value.as_str().context("a file is no text")?).context("a file is not YAML")?;
    }
    Ok(())
}

/// Checks the effects of [`OPTIONS`].
fn with_options(objects: &Objects) -> anyhow::Result<()> {
    ensure!(!objects.contains_key("ClusterRole"), "a role without `podNames`");
    let configuration = &objects["ConfigMap"]["data"]["undercurrent.yaml"];
    let expected = json!({"interval": "10s", "sysfs_root": "/host/sys", "separation": {"root_worker": true}});
    ensure!(*configuration == expected, "{configuration}");
    let pod = &objects["DaemonSet"]["spec"]["template"]["spec"];
    ensure!(pod["automountServiceAccountToken"] == false, "{pod:#}");
    let container = &pod["containers"][0];
    ensure!(container.get("livenessProbe").is_none(), "a probe without an endpoint for it");
    let security = &container["securityContext"];
    ensure!(security["capabilities"]["add"] == json!(RESTRICTED), "{security:#}");
    ensure!(container["envFrom"][0]["secretRef"]["name"] == "undercurrent-headers", "{container:#}");
    let variables = container["env"].as_array().context("no variables")?;
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317"),
        ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=production"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/undercurrent-tls/ca.crt"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/etc/undercurrent-tls/tls.crt"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/etc/undercurrent-tls/tls.key"),
        ("RUST_LOG", "info"),
    ] {
        ensure!(variables.contains(&json!({"name": name, "value": value})), "no {name}={value} in {variables:#?}");
    }
    let mounts = container["volumeMounts"].as_array().context("no mounts")?;
    let tls = json!({"name": "tls", "mountPath": "/etc/undercurrent-tls", "readOnly": true});
    ensure!(mounts.contains(&tls), "{mounts:#?}");
    Ok(())
}
