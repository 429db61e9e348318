//! Suggestions for misspelled names.

/// Minimum Jaro-Winkler similarity of a suggestion.
const ALIKE: f64 = 0.8;

/// Returns the most similar known name, or `None` if no name is similar enough.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&name.to_lowercase(), candidate), *candidate))
        .filter(|(similarity, _)| *similarity >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// Returns ` (did you mean ...?)`, or an empty string if no name is similar.
pub fn question(name: &str, known: &[&str]) -> String {
    nearest(name, known).map_or_else(String::new, |candidate| format!(" (did you mean `{candidate}`?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["interval", "outputs", "otlp", "memory_limit", "signals"];
        let suggested =
            ["intervall", "Interval", "output", "memlimit", "memory-limit", "singals", "xyz", "", "telemetry"]
                .map(|name| nearest(name, &known));
        assert_eq!(
            suggested,
            [
                Some("interval"),
                Some("interval"),
                Some("outputs"),
                Some("memory_limit"),
                Some("memory_limit"),
                Some("signals"),
                None,
                None,
                None
            ]
        );
    }
}
