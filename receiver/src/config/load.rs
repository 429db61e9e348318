//! Loading of the configuration file.

use std::{io, path::Path};

use serde_saphyr::{budget, options};

use super::{ConfigError, File, Position, file::SIZE_LIMIT};
use crate::{files::read_regular, text};

impl File {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not YAML, or contains an unknown key or an invalid value.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &Self::read(path)?)
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or is too large.
    pub fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
        read(path)
    }

    /// Parses the content of a file. Error messages name `path`.
    ///
    /// # Errors
    /// If the content is not YAML, or contains an unknown key or an invalid value.
    pub fn parse(path: &Path, content: &[u8]) -> Result<Self, ConfigError> {
        let content = text_of(path, content)?;
        let options = options! {
            strict_booleans: true,
            with_snippet: false,
            budget: budget! { max_depth: 32 },
        };
        // A file with comments only is an empty document, which YAML reads as null.
        let file = serde_saphyr::from_str_with_options::<Option<Self>>(content, options)
            .map(Option::unwrap_or_default)
            .map_err(|error| ConfigError::from_yaml(path, content, &error))?;
        match file.signals.tcp_peers.unknown_network() {
            None => Ok(file),
            Some(name) => Err(ConfigError::Invalid {
                path: path.to_owned(),
                position: None,
                problem: format!(
                    "`signals.tcp_peers.measured_networks` names `{}`, which `networks` does not have: add its prefixes",
                    text::plain(name)
                ),
            }),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let at = || path.to_owned();
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ConfigError::Missing { path: at() },
        io::ErrorKind::IsADirectory => ConfigError::Directory { path: at() },
        io::ErrorKind::PermissionDenied => ConfigError::Denied { path: at() },
        io::ErrorKind::FileTooLarge => ConfigError::TooLarge { path: at() },
        _ => ConfigError::Unreadable { path: at(), source },
    };
    read_regular(path, SIZE_LIMIT).map_err(unreadable)
}

fn text_of<'a>(path: &Path, content: &'a [u8]) -> Result<&'a str, ConfigError> {
    let not_text =
        |offset: usize| ConfigError::NotText { path: path.to_owned(), position: position(&content[..offset]) };
    let text = std::str::from_utf8(content).map_err(|error| not_text(error.valid_up_to()))?;
    let control = |character: char| character.is_control() && !matches!(character, '\t' | '\n' | '\r' | '\u{85}');
    match text.find(control) {
        Some(offset) => Err(not_text(offset)),
        None => Ok(text),
    }
}

/// Returns the position of the byte after `before`.
fn position(before: &[u8]) -> Position {
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    Position { line: line as u64, column: column as u64 }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn refusal(path: &Path, folder: &Path) -> String {
        File::load(path).expect_err("refused").to_string().replace(&folder.display().to_string(), "/etc")
    }

    #[test]
    fn unreadable_files_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let large = folder.path().join("large.yaml");
        fs::write(&large, "#".repeat(SIZE_LIMIT as usize + 1)).expect("written");
        let cases = [folder.path().join("missing.yaml"), folder.path().to_owned(), large.join("below"), large];
        insta::assert_snapshot!(cases.map(|path| refusal(&path, folder.path())).join("\n"), @"
        /etc/missing.yaml: no such file: check the path, or write a first one with `undercurrent config example`
        /etc: is a directory: name the file in it
        /etc/large.yaml/below: cannot be read: Not a directory (os error 20)
        /etc/large.yaml: is larger than 1024 KiB: this is no configuration file, check the path
        ");
    }

    #[test]
    fn permission_errors_name_the_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret.yaml");
        fs::write(&path, "interval: 3s\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("closed");
        let refusal = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // Linux capabilities belong to a thread. This thread drops its capabilities, so that the permission
                // applies to root too.
                caps::clear(None, caps::CapSet::Effective).expect("capabilities dropped");
                refusal(&path, folder.path())
            });
            reader.join().expect("no panic")
        });
        insta::assert_snapshot!(refusal, @"/etc/secret.yaml: permission denied: let the user that runs undercurrent read it");
    }

    #[test]
    fn the_largest_file_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        let mut content = "interval: 3s\n".to_owned();
        content.push_str(&"#".repeat(SIZE_LIMIT as usize - content.len()));
        fs::write(&path, content).expect("written");
        let interval = File::load(&path).expect("loaded").interval;
        assert_eq!(interval, "3s".parse().ok());
    }

    proptest::proptest! {
        #[test]
        fn no_content_panics(content: Vec<u8>, text in "(interval|otlp|signals|[-:,\\[\\]{}#&*!|>'\"%@` \t\n]|[a-z0-9]){0,40}") {
            let _ = (File::parse(Path::new("c"), &content), File::parse(Path::new("c"), text.as_bytes()));
        }
    }
}
