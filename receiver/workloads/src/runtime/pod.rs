//! Pods, from the labels that the kubelet sets on every container.

use std::collections::BTreeMap;

use crate::PodMetadata;

const NAME: &str = "io.kubernetes.pod.name";
const NAMESPACE: &str = "io.kubernetes.pod.namespace";
const UID: &str = "io.kubernetes.pod.uid";
const CONTAINER: &str = "io.kubernetes.container.name";
/// The container name that cri-dockerd gives to the sandbox of a pod.
const SANDBOX: &str = "POD";
/// The source of the pod: `api`, or `file` or `http` for a static pod.
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// Returns the pod in the labels of a container; `None` without a pod.
pub(super) fn from_labels(labels: &BTreeMap<String, String>) -> Option<PodMetadata> {
    let label = |key: &str| labels.get(key).filter(|value| !value.is_empty()).cloned();
    let (uid, name, namespace) = (label(UID), label(NAME), label(NAMESPACE));
    if uid.is_none() && name.is_none() {
        return None;
    }
    let container = label(CONTAINER).filter(|name| name != SANDBOX);
    Some(PodMetadata { uid, name, namespace, container, ..PodMetadata::default() })
}

/// Removes the uid of a static pod, because the API server assigns another uid to the pod.
pub(super) fn as_the_api_server_has_it(pod: &mut PodMetadata) {
    if pod.annotations.get(CONFIG_SOURCE).is_some_and(|source| source != "api") {
        pod.uid = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_kubelets_labels_tell_the_pod() {
        let labels = map(&[(NAME, "web-0"), (NAMESPACE, "shop"), (UID, "u"), (CONTAINER, "nginx"), ("other", "x")]);
        let pod = from_labels(&labels).expect("a pod");
        assert_eq!((pod.name.as_deref(), pod.namespace.as_deref()), (Some("web-0"), Some("shop")));
        assert_eq!((pod.uid.as_deref(), pod.container.as_deref()), (Some("u"), Some("nginx")));
        assert_eq!(from_labels(&map(&[(NAME, "web-0"), (CONTAINER, SANDBOX)])).expect("a pod").container, None);
        assert_eq!(from_labels(&map(&[(CONTAINER, "nginx"), (UID, "")])), None);
    }

    #[test]
    fn a_static_pod_has_another_uid_at_the_api_server() {
        let pod = |source: &str| {
            let annotations = map(&[(CONFIG_SOURCE, source)]);
            let mut pod = PodMetadata { uid: Some("u".to_owned()), annotations, ..PodMetadata::default() };
            as_the_api_server_has_it(&mut pod);
            pod
        };
        assert_eq!(pod("file").uid, None);
        assert_eq!(pod("api").uid.as_deref(), Some("u"));
    }
}
