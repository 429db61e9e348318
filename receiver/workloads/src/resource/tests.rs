use std::collections::BTreeMap;

use super::*;
use crate::{ContainerId, Runtime, identify, telemetry::INSTANCE_NAMESPACE};

const ID: &str = "3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860";

/// The attributes of a node with the sidecar in a separate pod.
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

fn resource_of(path: &str, metadata: Option<&Metadata>, service: Option<&Service>) -> Resource {
    let path = CgroupPath::new(path.as_bytes());
    let (identity, depth) = identify(&path).expect("a workload");
    let path = path.ancestor(depth);
    let subject = Subject { identity: &identity, path: &path, instance: identity.instance(&path) };
    resource(&host(), &subject, metadata, service)
}

fn listing(attributes: &Attributes) -> String {
    attributes.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

/// Lists the attributes except those of the host.
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
    let resource = resource_of(&format!("/system.slice/docker-{ID}.scope/init.scope"), Some(&metadata), None);
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
    service.instance.id=b1a28715-df9d-5d01-8bef-c7c1c925cc38
    "#);
}

#[test]
fn a_container_of_a_pod() {
    let metadata = pod(&[("app.kubernetes.io/name", "cart"), ("app.kubernetes.io/version", "1.27")], &[]);
    let path = format!("{POD}/cri-containerd-{ID}.scope");
    insta::assert_snapshot!(own(&resource_of(&path, Some(&metadata), None)), @"
    container.id=3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860
    container.runtime.name=containerd
    k8s.pod.uid=2fc932ce-fdcc-454b-97bd-aadfdeb4c340
    k8s.pod.name=cart-7d9c5bd6f-abcde
    k8s.namespace.name=shop
    k8s.container.name=app
    service.name=cart
    service.namespace=shop
    service.version=1.27
    service.instance.id=b1a28715-df9d-5d01-8bef-c7c1c925cc38
    ");
    insta::assert_snapshot!(own(&resource_of(&path, None, None)), @"
    container.id=3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860
    container.runtime.name=containerd
    k8s.pod.uid=2fc932ce-fdcc-454b-97bd-aadfdeb4c340
    service.instance.id=b1a28715-df9d-5d01-8bef-c7c1c925cc38
    ");
}

#[test]
fn a_pod() {
    insta::assert_snapshot!(own(&resource_of(POD, Some(&pod(&[], &[])), None)), @"
    k8s.pod.uid=2fc932ce-fdcc-454b-97bd-aadfdeb4c340
    k8s.pod.name=cart-7d9c5bd6f-abcde
    k8s.namespace.name=shop
    undercurrent.workload.cgroup=/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2fc932ce_fdcc_454b_97bd_aadfdeb4c340.slice
    service.instance.id=866e9e48-7bf8-5980-b18d-3cf582579e92
    ");
}

#[test]
fn a_unit() {
    insta::assert_snapshot!(own(&resource_of("/system.slice/ssh.service", None, None)), @"
    undercurrent.workload.unit=ssh.service
    undercurrent.workload.cgroup=/system.slice/ssh.service
    service.instance.id=845b95da-2e31-5998-9bab-92a9fd9aa9de
    ");
}

#[test]
fn another_cgroup() {
    insta::assert_snapshot!(own(&resource_of("/batch\n/jobs", None, None)), @r"
    undercurrent.workload.cgroup=/batch\x0a
    service.instance.id=24c612e8-a326-5335-8605-01e615cf2ebc
    ");
}

#[test]
fn a_container_known_by_its_name() {
    insta::assert_snapshot!(own(&resource_of("/lxc.payload.web", None, None)), @"
    container.id=web
    container.name=web
    container.runtime.name=lxc
    service.instance.id=6d1b207f-5d3f-56ef-825b-b26a7c84d69e
    ");
    let below = resource_of("/user.slice/user-1000.slice/user@1000.service/lxc.payload.web", None, None);
    assert_ne!(
        get(&below, "service.instance.id"),
        get(&resource_of("/lxc.payload.web", None, None), "service.instance.id"),
        "another of the same name"
    );
}

#[test]
fn what_has_no_slot() {
    insta::assert_snapshot!(own(&overflow(&host())), @"
    otel.metric.overflow=true
    service.instance.id=9c5a400f-cfe8-5da2-889c-795932c75638
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
        let resource = resource_of(&path, Some(&metadata), Some(own));
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
        get(&resource_of(&format!("{POD}/crio-{ID}.scope"), Some(&metadata), None), "service.name").expect("a name")
    };
    assert_eq!(name(&labels, &annotations), "annotation");
    assert_eq!(name(&labels, &[]), "instance");
    assert_eq!(name(&labels[..1], &[]), "name");
    assert_eq!(name(&[], &[]), "compose");
}

#[test]
fn names_are_never_invented() {
    for resource in [
        resource_of(&format!("/docker/{ID}"), Some(&Metadata::default()), Some(&Service::default())),
        resource_of(POD, Some(&pod(&[], &[])), None),
        resource_of("/system.slice/ssh.service", None, None),
        overflow(&host()),
    ] {
        assert_eq!(get(&resource, "service.name"), None);
        assert_eq!(get(&resource, "service.namespace"), None);
    }
    let endless = Metadata { name: Some("x".repeat(LONGEST + 1)), ..Metadata::default() };
    assert_eq!(get(&resource_of(&format!("/docker/{ID}"), Some(&endless), None), "container.name"), None);
}

#[test]
fn the_uid_of_the_api_server_wins_over_the_path_s() {
    let metadata = pod(&[], &[]);
    let path = format!("/kubepods/burstable/pod9729a196c4723b60ab401eaff722982d/{ID}");
    let uid = |metadata: Option<&Metadata>| get(&resource_of(&path, metadata, None), "k8s.pod.uid").expect("a uid");
    assert_eq!(uid(None), "9729a196c4723b60ab401eaff722982d");
    assert_eq!(uid(Some(&metadata)), "2fc932ce-fdcc-454b-97bd-aadfdeb4c340");
}

#[test]
fn an_answer_about_another_pod_is_left_out() {
    let other = POD.replace("2fc932ce", "00000000");
    let metadata = Metadata {
        name: Some("named".to_owned()),
        ..pod(&[("app.kubernetes.io/name", "cart")], &[("resource.opentelemetry.io/service.name", "cart")])
    };
    insta::assert_snapshot!(own(&resource_of(&format!("{other}/crio-{ID}.scope"), Some(&metadata), None)), @"
    container.id=3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860
    container.name=named
    container.runtime.name=cri-o
    k8s.pod.uid=00000000-fdcc-454b-97bd-aadfdeb4c340
    service.instance.id=b1a28715-df9d-5d01-8bef-c7c1c925cc38
    ");
    assert_eq!(get(&resource_of(&other, Some(&metadata), None), "k8s.pod.name"), None);
}

#[test]
fn a_pod_that_the_path_does_not_name_is_left_out() {
    let metadata = pod(&[("app.kubernetes.io/name", "cart")], &[]);
    let user = "/user.slice/user-1000.slice/user@1000.service/user.slice";
    for path in [format!("/system.slice/docker-{ID}.scope"), format!("{user}/libpod-{ID}.scope")] {
        let resource = resource_of(&path, Some(&metadata), None);
        for key in ["k8s.pod.uid", "k8s.pod.name", "k8s.namespace.name", "k8s.container.name", "service.name"] {
            assert_eq!(get(&resource, key), None, "{key} of {path}");
        }
    }
}

#[test]
fn foreign_text_is_escaped_and_short() {
    let evil = "a\u{202e}\u{1b}[2J\n";
    let escaped = "a\\u{202e}\\u{1b}[2J\\n";
    let some = || Some(evil.to_owned());
    let pod = PodMetadata {
        uid: Some("2fc932ce-fdcc-454b-97bd-aadfdeb4c340".to_owned()),
        name: some(),
        namespace: some(),
        container: some(),
        labels: texts(&[("app.kubernetes.io/version", evil)]),
        annotations: texts(&[("resource.opentelemetry.io/deployment.environment.name", evil)]),
    };
    let metadata = Metadata {
        name: some(),
        image_name: some(),
        image_tags: vec![evil.to_owned(), "\n".repeat(LONGEST)],
        labels: texts(&[]),
        pod: Some(pod),
    };
    let service = Service { name: some(), namespace: some(), version: some(), environment: some() };
    let resource = resource_of(&format!("{POD}/{ID}"), Some(&metadata), Some(&service));
    for key in [
        "container.name",
        "container.image.name",
        "k8s.pod.name",
        "k8s.namespace.name",
        "k8s.container.name",
        "service.name",
        "service.namespace",
        "service.version",
        "deployment.environment.name",
    ] {
        assert_eq!(get(&resource, key).as_deref(), Some(escaped), "{key}");
    }
    let tags = resource.attributes.get("container.image.tags");
    assert_eq!(tags, Some(&vec![escaped.to_owned()].into()), "a tag that is too long is left out");
    let resource = resource_of(&format!("/lxc/{evil}"), None, None);
    assert_eq!(get(&resource, "container.id").as_deref(), Some(escaped));
    let resource = resource_of(&format!("/x{}", "\u{202e}".repeat(LONGEST)), None, None);
    let path = get(&resource, "undercurrent.workload.cgroup").expect("a path");
    assert!(path.len() <= LONGEST && path.starts_with("/x\\u{202e}") && path.ends_with('…'), "{path}");
}

#[test]
fn printable_text_stays_as_it_is() {
    for name in ["größe", "हिन्दी", "e\u{301}", "👩\u{200d}💻", "a b\\\"'"] {
        let metadata = Metadata { name: Some(name.to_owned()), ..Metadata::default() };
        let resource = resource_of(&format!("/docker/{ID}"), Some(&metadata), None);
        assert_eq!(get(&resource, "container.name").as_deref(), Some(name));
    }
}

#[test]
fn an_instance_s_id_is_the_same_everywhere_but_on_another_host() {
    let id = |path: &str| get(&resource_of(path, None, None), "service.instance.id").expect("an id");
    let docker = id(&format!("/docker/{ID}"));
    let name = format!("3d1219c7c4c5404aaa1f6d2a48adfda4\0worker-1\0container\0{ID}");
    assert_eq!(docker, uuid::Uuid::new_v5(&INSTANCE_NAMESPACE, name.as_bytes()).to_string());
    assert_eq!(id(&format!("/system.slice/docker-{ID}.scope")), docker, "another driver");
    let container = Identity::Container { id: ContainerId(ID.to_owned()), runtime: Some(Runtime::Podman), pod: None };
    let path = CgroupPath::root();
    let subject = Subject { identity: &container, path: &path, instance: container.instance(&path) };
    let on = |host: &Attributes| get(&resource(host, &subject, None, None), "service.instance.id");
    assert_eq!(on(&host()), Some(docker.clone()));
    assert_ne!(on(&host().with("host.id", "another")), Some(docker));
    assert_eq!(on(&Attributes::new().with("os.type", "linux")), None, "a host without an id");
}

#[test]
fn an_instance_s_id_goes_by_the_path_where_an_id_proves_nothing() {
    let id = |path: &str| get(&resource_of(path, None, None), "service.instance.id").expect("an id");
    let rightful = id(&format!("/docker/{ID}"));
    let pod = "/kubepods.slice/kubepods-pod15513b48_e7a5_48fc_b9e3_92f713f36504.slice";
    let (victim, forger) = (format!("docker-{ID}.scope"), "/user.slice/user-1000.slice/user@1000.service/user.slice");
    let forged = format!("{forger}/{victim}");
    assert_eq!(id(&forged), id(&forged), "the same after a restart");
    let others = [
        rightful.clone(),
        id(&forged),
        id(&format!("/user.slice/user-1001.slice/user@1001.service/user.slice/{victim}")),
        id(&format!("{forger}/nested/{victim}")),
        id(&format!("/system.slice/app.service/{victim}")),
        id(&format!("/docker/{}/{victim}", ID.replace('3', "4"))),
        id(pod),
        id(&format!("/docker/{ID}{pod}")),
    ];
    let distinct: std::collections::BTreeSet<_> = others.iter().collect();
    assert_eq!(distinct.len(), others.len(), "{others:?}");
    assert_eq!(id(&format!("{pod}/{victim}")), rightful, "a pod's containers are the kubelet's");
    let name = format!("3d1219c7c4c5404aaa1f6d2a48adfda4\0worker-1\0cgroup\0{forged}");
    assert_eq!(id(&forged), uuid::Uuid::new_v5(&INSTANCE_NAMESPACE, name.as_bytes()).to_string());
}
