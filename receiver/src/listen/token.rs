//! The token that readers send.

use std::path::Path;

use http::{HeaderMap, header::AUTHORIZATION};
use subtle::ConstantTimeEq as _;

use super::ListenError;
use crate::files::read_regular;

/// The largest file of a token in bytes.
const LARGEST: u64 = 4096;
/// The fewest characters of a token. A shorter one can be guessed.
const SHORTEST: usize = 16;
/// The scheme of the header, with its separator.
const SCHEME: &str = "bearer ";

/// A secret text. Debug output hides it.
#[derive(Clone)]
pub(super) struct Token(Box<[u8]>);

impl Token {
    /// Reads a token from a file, without space around it.
    ///
    /// # Errors
    /// If the file cannot be read, or its content cannot be sent as a token.
    pub(super) fn read(path: &Path) -> Result<Self, ListenError> {
        let failed = |problem: String| ListenError::Token { path: path.display().to_string(), problem };
        let content = read_regular(path, LARGEST).map_err(|error| failed(error.to_string()))?;
        let token = content.trim_ascii();
        if token.len() < SHORTEST {
            return Err(failed(format!(
                "it has fewer than {SHORTEST} characters: create one with `openssl rand -hex 32`"
            )));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(failed("it has spaces, or other characters than those of ASCII".to_owned()));
        }
        Ok(Self(token.into()))
    }

    /// Returns true if the headers of a request have the token. The duration of the comparison is independent of the characters.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
        let Some((scheme, token)) = value.split_at_checked(SCHEME.len()) else { return false };
        scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && bool::from(token.trim_ascii().ct_eq(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn read(content: &[u8]) -> Result<Token, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), content).expect("written");
        Token::read(file.path()).map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = read(format!(" {SECRET}\n").as_bytes()).expect("a token");
        for (value, is_valid) in [
            (Some(format!("Bearer {SECRET}")), true),
            (Some(format!("bearer  {SECRET} ")), true),
            (Some(format!("Bearer {SECRET}0")), false),
            (Some(format!("Bearer {}", &SECRET[1..])), false),
            (Some(SECRET.to_owned()), false),
            (Some(format!("Basic {SECRET}")), false),
            (Some("Bearer ".to_owned()), false),
            (Some(String::new()), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(value.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).expect("a value"))));
            assert_eq!(token.is_in(&headers), is_valid, "{value:?}");
        }
    }

    #[test]
    fn an_unsuitable_file_is_refused() {
        let refused = |content: &[u8]| read(content).err().expect("refused");
        let refusals = [refused(b"\n"), refused(b"0123456789 abcdef"), refused("0123456789abcdé".as_bytes())];
        insta::assert_snapshot!(refusals.join("\n"), @"
        cannot read the token in FILE: it has fewer than 16 characters: create one with `openssl rand -hex 32`
        cannot read the token in FILE: it has spaces, or other characters than those of ASCII
        cannot read the token in FILE: it has spaces, or other characters than those of ASCII
        ");
        assert!(refused(&[b'a'; 5000]).contains("more than 4096 bytes"));
        let missing = Token::read("/nonexistent/token".as_ref()).err().map(|error| error.to_string());
        assert!(missing.is_some_and(|error| error.contains("/nonexistent/token")));
    }
}
