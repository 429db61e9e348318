//! References to images: `registry:5000/team/app:1.2@sha256:...`.

/// An image as people refer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    /// Without tag and digest; absent where only an id is given.
    pub(super) name: Option<String>,
    /// The tag, where one is written.
    pub(super) tags: Vec<String>,
}

impl Image {
    /// Splits a reference. Where it is the image's `id` (`sha256:` and hexadecimal digits) or begins like it, it is no
    /// name.
    pub(super) fn parse(reference: &str, id: &str) -> Self {
        let (named, digest) =
            reference.split_once('@').map_or((reference, None), |(named, digest)| (named, Some(digest)));
        if named.is_empty() || digest.is_none() && is_id(named, id) {
            return Self::default();
        }
        // A colon before the last slash belongs to the registry's port.
        let (name, tag) = match named.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (named, ""),
        };
        let owned = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self { name: owned(name), tags: owned(tag).into_iter().collect() }
    }
}

fn is_id(named: &str, id: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some((algorithm, rest)) = named.split_once(':')
        && algorithm.starts_with("sha")
        && rest.len() >= 32
        && digits(rest)
    {
        return true;
    }
    let id = id.rsplit_once(':').map_or(id, |(_, digits)| digits);
    digits(named) && (named.len() == 64 || id.starts_with(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sha256:3f57d9401f8d42f986df300f0c69192fc41da28ccc8d797829467780db3dd741";

    #[test]
    fn references_are_split_at_the_right_colon() {
        let digest = format!("@{ID}");
        for (reference, name, tag) in [
            ("nginx", "nginx", ""),
            ("nginx:1.27", "nginx", "1.27"),
            ("docker.io/library/nginx:1.27", "docker.io/library/nginx", "1.27"),
            ("registry:5000/a/b", "registry:5000/a/b", ""),
            ("registry:5000/a/b:1.2", "registry:5000/a/b", "1.2"),
            ("[::1]:5000/a:b", "[::1]:5000/a", "b"),
            ("localhost/app:latest", "localhost/app", "latest"),
            ("deadbeef", "deadbeef", ""),
            ("a:", "a", ""),
        ] {
            let expected = Image {
                name: Some(name.to_owned()),
                tags: Some(tag.to_owned()).filter(|tag| !tag.is_empty()).into_iter().collect(),
            };
            assert_eq!(Image::parse(reference, ID), expected, "{reference}");
            assert_eq!(Image::parse(&format!("{reference}{digest}"), ID), expected, "{reference} with a digest");
        }
    }

    #[test]
    fn an_id_is_no_name() {
        let digits = &ID["sha256:".len()..];
        for reference in ["", "@", ID, digits, &digits[..12], &digits[..4], &format!("@{ID}"), ":tag"] {
            assert_eq!(Image::parse(reference, ID).name, None, "{reference}");
        }
        assert_eq!(Image::parse(&"a".repeat(64), "").name, None);
        assert_eq!(Image::parse("3f57", "").name.as_deref(), Some("3f57"));
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics_and_nothing_is_invented(reference: String, id: String) {
            let image = Image::parse(&reference, &id);
            for part in image.name.iter().chain(&image.tags) {
                assert!(!part.is_empty() && reference.contains(part.as_str()));
            }
        }
    }
}
