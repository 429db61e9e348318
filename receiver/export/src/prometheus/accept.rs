//! Selection of a format by the header `Accept`.

use super::Format;

/// The type of Prometheus' protobuf messages.
const MESSAGE: &str = "io.prometheus.client.MetricFamily";

/// Returns the format that a client prefers. A client that accepts none of the formats gets the text format 0.0.4.
#[must_use]
pub fn negotiate(accept: &str) -> Format {
    let ranges = accept.split(',').filter_map(range);
    let mut best: Option<(Format, f32)> = None;
    for (format, quality) in ranges.filter(|(_, quality)| *quality > 0.0) {
        // The first one of equal quality.
        if best.is_none_or(|(_, highest)| quality > highest) {
            best = Some((format, quality));
        }
    }
    best.map_or(Format::Text, |(format, _)| format)
}

/// Returns the format of a media range and its quality from 0 to 1.
fn range(text: &str) -> Option<(Format, f32)> {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let parameters: Vec<(String, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
        .collect();
    let parameter = |name: &str| parameters.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let is = |name, value| parameter(name).is_none_or(|given| given == value);
    let format = match kind.as_str() {
        "application/vnd.google.protobuf" if is("proto", MESSAGE) && parameter("encoding") == Some("delimited") => {
            Format::Protobuf
        }
        "application/openmetrics-text" if is("version", "1.0.0") => Format::OpenMetrics,
        "text/plain" if is("version", "0.0.4") => Format::Text,
        "*/*" | "text/*" => Format::Text,
        _ => return None,
    };
    let quality = parameter("q").map_or(Some(1.0), |quality| quality.parse().ok())?;
    (0.0..=1.0).contains(&quality).then_some((format, quality))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::variants::variants;

    /// The header of Prometheus 3 with `scrape_native_histograms`, and without.
    const NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
        application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
        text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    const CLASSIC: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
        application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";

    #[test]
    fn the_preferred_format_is_selected() {
        for (accept, format) in [
            (NATIVE, Format::Protobuf),
            (CLASSIC, Format::OpenMetrics),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("*/*", Format::Text),
            ("", Format::Text),
            ("application/json", Format::Text),
            ("text/plain;q=0.5, Application/OpenMetrics-Text; Version=\"1.0.0\"; q=0.9", Format::OpenMetrics),
            ("application/openmetrics-text;q=0,text/plain;q=0.1", Format::Text),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/vnd.google.protobuf;proto=other;encoding=delimited", Format::Text),
            ("application/vnd.google.protobuf", Format::Text),
            ("application/openmetrics-text;q=NaN,application/openmetrics-text;q=7", Format::Text),
        ] {
            assert_eq!(negotiate(accept), format, "{accept}");
        }
    }

    proptest! {
        #[test]
        fn every_header_selects_a_format(accept in variants(&[NATIVE, CLASSIC, "*/*;q=1"])) {
            let _ = negotiate(&accept);
        }
    }
}
