//! Size limits of metadata. Runtimes set hardly any limits, and every workload keeps its metadata.

use std::collections::BTreeMap;

use crate::{Metadata, PodMetadata};

/// The maximum length of a text in bytes; for labels, of the key and the value together. A longer text is dropped,
/// because a truncated text would be a different one.
const TEXT: usize = 1 << 10;
/// The maximum size of a workload's metadata, in bytes.
const ANSWER: usize = 4 << 10;
/// The maximum number of image tags.
const TAGS: usize = 16;

/// Metadata within the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounded {
    pub(super) metadata: Metadata,
    /// The number of texts, and of used labels and annotations, that exceed the limits.
    pub(super) left_out: u64,
}

impl From<Metadata> for Bounded {
    fn from(mut metadata: Metadata) -> Self {
        metadata.retain_used();
        Self { left_out: bound(&mut metadata), metadata }
    }
}

/// Names have priority: labels and annotations get the remaining bytes.
fn bound(metadata: &mut Metadata) -> u64 {
    let mut budget = Budget { bytes: ANSWER, left_out: 0 };
    let Metadata { name, image_name, image_tags, labels, pod } = metadata;
    budget.text(name);
    budget.text(image_name);
    if let Some(PodMetadata { uid, name, namespace, container, labels, annotations }) = pod {
        [uid, name, namespace, container].into_iter().for_each(|text| budget.text(text));
        budget.map(annotations);
        budget.map(labels);
    }
    budget.map(labels);
    budget.tags(image_tags);
    budget.left_out
}

/// The remaining number of bytes.
struct Budget {
    bytes: usize,
    left_out: u64,
}

impl Budget {
    fn keeps(&mut self, size: usize) -> bool {
        let kept = size <= TEXT && size <= self.bytes;
        if kept {
            self.bytes -= size;
        } else {
            self.left_out += 1;
        }
        kept
    }

    /// Releases the excess capacity that a decoder may have reserved.
    fn text(&mut self, text: &mut Option<String>) {
        text.take_if(|text| !self.keeps(text.len()));
        text.iter_mut().for_each(String::shrink_to_fit);
    }

    fn map(&mut self, map: &mut BTreeMap<String, String>) {
        map.retain(|key, value| self.keeps(key.len() + value.len()));
        map.values_mut().for_each(String::shrink_to_fit);
    }

    fn tags(&mut self, tags: &mut Vec<String>) {
        self.left_out += tags.len().saturating_sub(TAGS) as u64;
        tags.truncate(TAGS);
        tags.retain(|tag| self.keeps(tag.len()));
        tags.iter_mut().for_each(String::shrink_to_fit);
        tags.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: &str = "com.docker.compose.service";
    const LABEL: &str = "app.kubernetes.io/name";
    const ANNOTATION: &str = "resource.opentelemetry.io/service.name";

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_answer_within_the_limits_stays() {
        let labels = map(&[(USED, &"x".repeat(TEXT - USED.len()))]);
        let pod = PodMetadata {
            labels: map(&[(LABEL, "web")]),
            annotations: map(&[(ANNOTATION, "web")]),
            ..PodMetadata::default()
        };
        let metadata = Metadata { name: Some("x".repeat(TEXT)), labels, pod: Some(pod), ..Metadata::default() };
        assert_eq!(Bounded::from(metadata.clone()), Bounded { metadata, left_out: 0 });
    }

    #[test]
    fn labels_and_annotations_without_a_use_are_dropped() {
        let others = map(&[("a", "b"), ("resource.opentelemetry.io/team", "x"), ("app.kubernetes.io/part-of", "x")]);
        let pod = PodMetadata { labels: others.clone(), annotations: others.clone(), ..PodMetadata::default() };
        let metadata = Metadata { labels: others, pod: Some(pod), ..Metadata::default() };
        let expected = Metadata { pod: Some(PodMetadata::default()), ..Metadata::default() };
        assert_eq!(Bounded::from(metadata), Bounded { metadata: expected, left_out: 0 });
    }

    #[test]
    fn long_texts_are_left_out_whole() {
        let long = || "x".repeat(TEXT + 1);
        let pod = PodMetadata {
            name: Some(long()),
            annotations: map(&[(ANNOTATION, &long())]),
            labels: map(&[(LABEL, "web")]),
            ..PodMetadata::default()
        };
        let metadata = Metadata {
            image_name: Some(long()),
            image_tags: vec![long(), "1".to_owned()],
            labels: map(&[(USED, &long())]),
            pod: Some(pod),
            ..Metadata::default()
        };
        let pod = PodMetadata { labels: map(&[(LABEL, "web")]), ..PodMetadata::default() };
        let rest = Metadata { image_tags: vec!["1".to_owned()], pod: Some(pod), ..Metadata::default() };
        assert_eq!(Bounded::from(metadata), Bounded { metadata: rest, left_out: 5 });
    }

    /// The bytes of every text.
    fn size(metadata: &Metadata) -> usize {
        let Metadata { name, image_name, image_tags, labels, pod } = metadata;
        let pod = pod.clone().unwrap_or_default();
        let names = [name, image_name, &pod.uid, &pod.name, &pod.namespace, &pod.container];
        let maps = [labels, &pod.labels, &pod.annotations].into_iter().flatten();
        let tags = image_tags.iter().map(String::len).sum::<usize>();
        names.into_iter().flatten().map(String::len).sum::<usize>()
            + maps.map(|(key, value)| key.len() + value.len()).sum::<usize>()
            + tags
    }

    proptest::proptest! {
        #[test]
        fn an_answer_never_exceeds_its_limit(sizes in proptest::collection::vec(0..TEXT + 10, 9), tags in 0..40_usize) {
            let text = |index: usize| Some("x".repeat(sizes[index]));
            let pod = PodMetadata {
                uid: text(0),
                name: text(1),
                namespace: text(2),
                container: text(3),
                labels: map(&[(LABEL, &text(4).unwrap())]),
                annotations: map(&[(ANNOTATION, &text(5).unwrap()), ("unused", "x")]),
            };
            let image_tags = vec![text(6).unwrap(); tags];
            let metadata =
                Metadata { name: text(7), image_name: text(8), image_tags, labels: map(&[]), pod: Some(pod) };
            let Bounded { metadata, left_out } = Bounded::from(metadata);
            assert!(size(&metadata) <= ANSWER);
            assert_eq!(metadata.image_tags.capacity(), metadata.image_tags.len());
            let kept = metadata.image_tags.len() + metadata.pod.iter().map(|pod| pod.labels.len() + pod.annotations.len()).sum::<usize>();
            let names = [&metadata.name, &metadata.image_name].into_iter().flatten().count();
            let of_pod = metadata.pod.as_ref().map_or(0, |pod| [&pod.uid, &pod.name, &pod.namespace, &pod.container].into_iter().flatten().count());
            assert_eq!(kept + names + of_pod + usize::try_from(left_out).unwrap(), 8 + tags);
        }
    }
}
