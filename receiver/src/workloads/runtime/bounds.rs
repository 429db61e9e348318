//! What is kept of an answer. Runtimes set hardly any limits, and every workload keeps its own.

use std::collections::BTreeMap;

use crate::workloads::{Metadata, PodMetadata};

/// The longest text that is kept, in bytes; of a label its key and value together. A longer one is left out whole, since
/// a part of it would be something else.
const TEXT: usize = 1 << 10;
/// The most labels that are kept of a map, and the most annotations, the first in alphabetical order.
const ENTRIES: usize = 128;
/// The most bytes that are kept of a map.
const MAP: usize = 16 << 10;

/// What is kept of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounded {
    pub(super) metadata: Metadata,
    /// How many texts, labels and annotations are not.
    pub(super) left_out: u64,
}

impl From<Metadata> for Bounded {
    fn from(mut metadata: Metadata) -> Self {
        Self { left_out: bound(&mut metadata), metadata }
    }
}

fn bound(metadata: &mut Metadata) -> u64 {
    let Metadata { name, image_name, image_tags, labels, pod } = metadata;
    let tags = image_tags.len();
    image_tags.retain(|tag| tag.len() <= TEXT);
    image_tags.truncate(ENTRIES);
    let mut left_out = (tags - image_tags.len()) as u64 + map(labels);
    left_out += text(name) + text(image_name);
    if let Some(PodMetadata { uid, name, namespace, container, labels, annotations }) = pod {
        left_out += [uid, name, namespace, container].into_iter().map(text).sum::<u64>();
        left_out += map(labels) + map(annotations);
    }
    left_out
}

fn text(text: &mut Option<String>) -> u64 {
    u64::from(text.take_if(|text| text.len() > TEXT).is_some())
}

fn map(map: &mut BTreeMap<String, String>) -> u64 {
    let before = map.len();
    let (mut entries, mut bytes) = (0, 0);
    map.retain(|key, value| {
        let size = key.len() + value.len();
        let kept = size <= TEXT && entries < ENTRIES && bytes + size <= MAP;
        if kept {
            entries += 1;
            bytes += size;
        }
        kept
    });
    (before - map.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_the_limits_stays() {
        let labels = BTreeMap::from([("app".to_owned(), "x".repeat(TEXT - 3))]);
        let mut metadata = Metadata { name: Some("x".repeat(TEXT)), labels, ..Metadata::default() };
        let before = metadata.clone();
        assert_eq!(bound(&mut metadata), 0);
        assert_eq!(metadata, before);
    }

    #[test]
    fn long_texts_are_left_out_whole() {
        let long = || "x".repeat(TEXT + 1);
        let labels =
            BTreeMap::from([("a".to_owned(), long()), (long(), String::new()), ("b".to_owned(), String::new())]);
        let pod = PodMetadata { name: Some(long()), annotations: labels.clone(), ..PodMetadata::default() };
        let mut metadata = Metadata {
            image_name: Some(long()),
            image_tags: vec![long()],
            labels,
            pod: Some(pod),
            ..Metadata::default()
        };
        assert_eq!(bound(&mut metadata), 7);
        let rest = BTreeMap::from([("b".to_owned(), String::new())]);
        let pod = PodMetadata { annotations: rest.clone(), ..PodMetadata::default() };
        assert_eq!(metadata, Metadata { labels: rest, pod: Some(pod), ..Metadata::default() });
    }

    proptest::proptest! {
        #[test]
        fn maps_never_exceed_their_limits(sizes in proptest::collection::vec((0..2 * TEXT, 0..TEXT), 0..3 * ENTRIES)) {
            let entries = sizes.iter().enumerate();
            let mut labels: BTreeMap<_, _> =
                entries.map(|(number, (key, value))| (format!("{number:03}{}", "k".repeat(*key)), "v".repeat(*value))).collect();
            let before = labels.len();
            let left_out = map(&mut labels);
            assert_eq!(before - labels.len(), usize::try_from(left_out).expect("small"));
            assert!(labels.len() <= ENTRIES);
            assert!(labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= MAP);
        }
    }
}
