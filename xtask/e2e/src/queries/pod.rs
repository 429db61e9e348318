//! A container of Docker with the resource of a container in a pod, which needs a Kubernetes cluster otherwise.

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::ResourceMetrics,
};
use serde_json::Value;
use xtask_e2e::{
    collector::otlp::{Request, attributes, resource},
    prometheus::running::Prometheus,
};

use super::CLIENT;

/// The name of the pod.
pub const NAME: &str = "storefront-7d9c5bd6f-abcde";
/// The name of its container in the dashboards.
pub const WORKLOAD: &str = "storefront-7d9c5bd6f-abcde/storefront";
/// The attributes of the container in the pod.
const POD: [(&str, &str); 4] = [
    ("k8s.namespace.name", "shop"),
    ("k8s.pod.name", NAME),
    ("k8s.container.name", "storefront"),
    ("service.instance.id", "the same container in a pod"),
];

/// Sends the metrics of the client again, with the resource of a container in a pod. The attributes are those of the sidecar for
/// such a container: no `container.name`, and the names of the pod.
pub fn imitate(prometheus: &Prometheus, requests: &[Request]) -> anyhow::Result<()> {
    let mut sent = 0;
    for request in requests {
        let resource_metrics: Vec<_> = request.resource_metrics.iter().filter_map(in_pod).collect();
        if !resource_metrics.is_empty() {
            sent += 1;
            let request = serde_json::to_value(ExportMetricsServiceRequest { resource_metrics })?;
            prometheus.send(&without_nulls(request).to_string()).context("the metrics of a pod")?;
        }
    }
    ensure!(sent > 0, "the sidecar wrote no metrics of {CLIENT}");
    Ok(())
}

/// Removes absent values. Prometheus refuses `null`.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(elements) => elements.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Returns the metrics of the client as those of a container in a pod, or `None` for another resource.
fn in_pod(of: &ResourceMetrics) -> Option<ResourceMetrics> {
    if attributes(resource(of)).get("container.name").is_none_or(|name| name != CLIENT) {
        return None;
    }
    let mut copy = of.clone();
    let list = &mut copy.resource.as_mut()?.attributes;
    list.retain(|attribute| attribute.key != "container.name" && attribute.key != "service.instance.id");
    list.extend(POD.map(|(key, value)| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) }),
        ..KeyValue::default()
    }));
    Some(copy)
}
