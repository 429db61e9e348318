use std::collections::BTreeMap;

use super::*;
use crate::{
    telemetry::INSTANCE_NAMESPACE,
    workloads::{ContainerId, Runtime, identify},
};

const ID: &str = "3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860";

/// The node's attributes, as a sidecar in a pod of its own has them.
fn host() -> Attributes {
    Attributes::new()
        .with("service.name", "undercurrent")
        .with("service.version", "1")
        .with("service.instance.id", "the sidecar's")
        .with("host.name", "node-1")
        .with("host.id", "3d1219c7c4c5404aaa1f6d2a48adfda4")
        .with("os.type", "linux")
        .with("k8s.node.name", "worker-1")
        .with("k8s.cluster.name", "west")
        .with("k8s.pod.name", "undercurrent-x7x2p")
        .with("k8s.namespace.name", "observability")
        .with("container.id", "the sidecar's")
        .with("process.pid", 7_u32)
        .with("telemetry.sdk.name", "the sidecar's")
        .with("team", "platform")
}

fn said(path: &str, metadata: Option<&Metadata>, service: Option<&Service>) -> Resource {
    let path = CgroupPath::new(path.as_bytes());
    let (identity, depth) = identify(&path).expect("a workload");
    resource(&host(), &identity, &path.ancestor(depth), metadata, service)
}

fn listing(attributes: &Attributes) -> String {
    attributes.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

/// What a resource says beyond its host.
fn own(resource: &Resource) -> String {
    let host = host();
    let own = resource.attributes.iter().filter(|(key, value)| host.get(key) != Some(*value));
    listing(&own.fold(Attributes::new(), |own, (key, value)| own.with(key.to_owned(), value.clone())))
}

fn get(resource: &Resource, key: &str) -> Option<String> {
    resource.attributes.get(key).map(ToString::to_string)
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn pod(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Metadata {
    let text = |text: &str| Some(text.to_owned());
    let pod = PodMetadata {
        uid: text("2fc932ce-fdcc-454b-97bd-aadfdeb4c340"),
        name: text("cart-7d9c5bd6f-abcde"),
        namespace: text("shop"),
        container: text("app"),
        labels: texts(labels),
        annotations: texts(annotations),
    };
    Metadata { pod: Some(pod), ..Metadata::default() }
}

const POD: &str =
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2fc932ce_fdcc_454b_97bd_aadfdeb4c340.slice";

#[test]
fn a_container_of_docker_compose() {
    let metadata = Metadata {
        name: Some("shop-cart-1".to_owned()),
        image_name: Some("docker.io/library/nginx".to_owned()),
        image_tags: vec!["1.27".to_owned(), "latest".to_owned()],
        labels: texts(&[("com.docker.compose.project", "shop"), ("com.docker.compose.service", "cart")]),
        pod: None,
    };
    let resource = said(&format!("/system.slice/docker-{ID}.scope/init.scope"), Some(&metadata), None);
    insta::assert_snapshot!(listing(&resource.attributes), @r#"
    host.name=node-1
    host.id=3d1219c7c4c5404aaa1f6d2a48adfda4
    os.type=linux
    k8s.node.name=worker-1
    k8s.cluster.name=west
    team=platform
    container.id=3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860
    container.name=shop-cart-1
    container.runtime.name=docker
    container.image.name=docker.io/library/nginx
    container.image.tags=["1.27","latest"]
    service.name=cart
    service.instance.id=aebba19f-6f5f-5009-9475-45d89b1f2958
    "#);
}

#[test]
fn a_container_of_a_pod() {
    let metadata = pod(&[("app.kubernetes.io/name", "cart"), ("app.kubernetes.io/version", "1.27")], &[]);
    let path = format!("{POD}/cri-containerd-{ID}.scope");
    insta::assert_snapshot!(own(&said(&path, Some(&metadata), None)), @"
    container.id=3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860
    container.runtime.name=containerd
    k8s.pod.uid=2fc932ce-fdcc-454b-97bd-aadfdeb4c340
    k8s.pod.name=cart-7d9c5bd6f-abcde
    k8s.namespace.name=shop
    k8s.container.name=app
    service.name=cart
    service.namespace=shop
    service.version=1.27
    service.instance.id=aebba19f-6f5f-5009-9475-45d89b1f2958
    ");
    insta::assert_snapshot!(own(&said(&path, None, None)), @"
    container.id=3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860
    container.runtime.name=containerd
    k8s.pod.uid=2fc932ce-fdcc-454b-97bd-aadfdeb4c340
    service.instance.id=aebba19f-6f5f-5009-9475-45d89b1f2958
    ");
}

#[test]
fn a_pod() {
    insta::assert_snapshot!(own(&said(POD, Some(&pod(&[], &[])), None)), @"
    k8s.pod.uid=2fc932ce-fdcc-454b-97bd-aadfdeb4c340
    k8s.pod.name=cart-7d9c5bd6f-abcde
    k8s.namespace.name=shop
    undercurrent.workload.cgroup=/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2fc932ce_fdcc_454b_97bd_aadfdeb4c340.slice
    service.instance.id=6609fdda-4f8c-54a9-b670-1a192deac14a
    ");
}

#[test]
fn a_unit() {
    insta::assert_snapshot!(own(&said("/system.slice/ssh.service", None, None)), @"
    undercurrent.workload.unit=ssh.service
    undercurrent.workload.cgroup=/system.slice/ssh.service
    service.instance.id=4c51b39d-6bfb-5c21-a228-d2a54e2ef916
    ");
}

#[test]
fn another_cgroup() {
    insta::assert_snapshot!(own(&said("/batch\n/jobs", None, None)), @r#"
    undercurrent.workload.cgroup=/batch\x0a
    service.instance.id=4ec5ec62-e5c9-5fa4-8f77-d74c87467549
    "#);
}

#[test]
fn a_container_known_by_its_name() {
    insta::assert_snapshot!(own(&said("/lxc.payload.web", None, None)), @"
    container.id=web
    container.name=web
    container.runtime.name=lxc
    service.instance.id=cfff7553-e040-582d-bd4e-83ce9ea41a59
    ");
    let below = said("/user.slice/user-1000.slice/user@1000.service/lxc.payload.web", None, None);
    assert_ne!(
        get(&below, "service.instance.id"),
        get(&said("/lxc.payload.web", None, None), "service.instance.id"),
        "another of the same name"
    );
}

#[test]
fn what_has_no_slot() {
    insta::assert_snapshot!(own(&overflow(&host())), @"
    otel.metric.overflow=true
    service.instance.id=7c62052b-4452-5b0f-8cb3-2c20a75fd77a
    ");
}

#[test]
fn the_process_s_own_name_wins_and_takes_nothing_from_others() {
    let metadata = pod(
        &[("app.kubernetes.io/instance", "cart-west"), ("app.kubernetes.io/version", "2")],
        &[
            ("resource.opentelemetry.io/service.namespace", "annotated"),
            ("resource.opentelemetry.io/deployment.environment.name", "test"),
        ],
    );
    let path = format!("{POD}/cri-containerd-{ID}.scope");
    let service = |own: &Service| {
        let resource = said(&path, Some(&metadata), Some(own));
        ["service.name", "service.namespace", "service.version", "deployment.environment.name"]
            .map(|key| get(&resource, key).unwrap_or_default())
            .join(" ")
    };
    let named = Service { name: Some("cart".to_owned()), ..Service::default() };
    assert_eq!(service(&named), "cart   test");
    let placed = Service { environment: Some("production".to_owned()), ..Service::default() };
    assert_eq!(service(&placed), "cart-west annotated 2 production");
}

#[test]
fn a_pod_s_name_follows_the_conventions_order() {
    let labels = [("app.kubernetes.io/name", "name"), ("app.kubernetes.io/instance", "instance")];
    let annotations = [("resource.opentelemetry.io/service.name", "annotation")];
    let name = |labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
        let mut metadata = pod(labels, annotations);
        metadata.labels = texts(&[("io.podman.compose.service", "compose")]);
        get(&said(&format!("{POD}/crio-{ID}.scope"), Some(&metadata), None), "service.name").expect("a name")
    };
    assert_eq!(name(&labels, &annotations), "annotation");
    assert_eq!(name(&labels, &[]), "instance");
    assert_eq!(name(&labels[..1], &[]), "name");
    assert_eq!(name(&[], &[]), "compose");
}

#[test]
fn names_are_never_invented() {
    for resource in [
        said(&format!("/docker/{ID}"), Some(&Metadata::default()), Some(&Service::default())),
        said(POD, Some(&pod(&[], &[])), None),
        said("/system.slice/ssh.service", None, None),
        overflow(&host()),
    ] {
        assert_eq!(get(&resource, "service.name"), None);
        assert_eq!(get(&resource, "service.namespace"), None);
    }
    let endless = Metadata { name: Some("x".repeat(LONGEST + 1)), ..Metadata::default() };
    assert_eq!(get(&said(&format!("/docker/{ID}"), Some(&endless), None), "container.name"), None);
}

#[test]
fn the_uid_of_the_api_server_wins_over_the_path_s() {
    let metadata = pod(&[], &[]);
    let path = format!("/kubepods/burstable/pod9729a196c4723b60ab401eaff722982d/{ID}");
    let uid = |metadata: Option<&Metadata>| get(&said(&path, metadata, None), "k8s.pod.uid").expect("a uid");
    assert_eq!(uid(None), "9729a196c4723b60ab401eaff722982d");
    assert_eq!(uid(Some(&metadata)), "2fc932ce-fdcc-454b-97bd-aadfdeb4c340");
}

#[test]
fn an_instance_s_id_is_the_same_everywhere_but_on_another_host() {
    let id = |path: &str| get(&said(path, None, None), "service.instance.id").expect("an id");
    let docker = id(&format!("/docker/{ID}"));
    let name = format!("3d1219c7c4c5404aaa1f6d2a48adfda4\0container\0{ID}");
    assert_eq!(docker, uuid::Uuid::new_v5(&INSTANCE_NAMESPACE, name.as_bytes()).to_string());
    assert_eq!(id(&format!("/system.slice/docker-{ID}.scope")), docker, "another driver");
    let container = Identity::Container { id: ContainerId(ID.to_owned()), runtime: Some(Runtime::Podman), pod: None };
    let on =
        |host: &Attributes| get(&resource(host, &container, &CgroupPath::root(), None, None), "service.instance.id");
    assert_eq!(on(&host()), Some(docker.clone()));
    assert_ne!(on(&host().with("host.id", "another")), Some(docker));
    assert_eq!(on(&Attributes::new().with("os.type", "linux")), None, "a host without an id");
}
