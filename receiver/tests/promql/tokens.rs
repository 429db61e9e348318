//! Tokens of PromQL, as far as names need it.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A name or a word of the language.
    Word(&'a str),
    /// A text in quotes, without them.
    Text(&'a str),
    /// Any other character.
    Sign(char),
}

/// Returns the tokens of a query, without numbers, durations and variables of Grafana.
pub fn tokens(query: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | ':');
        let length = match first {
            '"' | '\'' | '`' => {
                let end = rest[1..].find(first).map_or(rest.len(), |end| end + 2);
                tokens.push(Token::Text(rest[..end].trim_matches(first)));
                end
            }
            '$' | '0'..='9' => 1 + rest[1..].find(|letter| !is_word(letter)).unwrap_or(rest.len() - 1),
            _ if is_word(first) => {
                let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
                tokens.push(Token::Word(&rest[..end]));
                end
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push(Token::Sign(first));
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}
