//! Prometheus' text format 0.0.4, and OpenMetrics 1.0.
//!
//! `prometheus-client` 0.26 writes OpenMetrics only.

use std::fmt::Write as _;

use super::{
    bounded,
    families::{Families, Family, Label, Series, of_exemplar},
    kept::Exemplars,
    names,
};
use crate::telemetry::{self, Data, ExponentialHistogram, Instrument};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The text format 0.0.4, without exemplars.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// Writes all families.
pub(super) fn encode(families: &Families<'_>, exemplars: &Exemplars, dialect: Dialect) -> String {
    let mut writer = Writer { text: String::new(), exemplars, dialect };
    families.families.iter().for_each(|family| writer.family(family));
    writer.targets(&families.targets);
    if dialect == Dialect::OpenMetrics {
        writer.text.push_str("# EOF\n");
    }
    writer.text
}

struct Writer<'a> {
    text: String,
    exemplars: &'a Exemplars,
    dialect: Dialect,
}

// Writing to a string cannot fail.
impl Writer<'_> {
    fn family(&mut self, family: &Family<'_>) {
        let instrument = family.descriptor.instrument;
        let name = match self.dialect {
            Dialect::Text => family.name.as_str(),
            Dialect::OpenMetrics => names::family(&family.name, instrument),
        };
        let kind = match instrument {
            Instrument::Counter => "counter",
            Instrument::UpDownCounter | Instrument::Gauge => "gauge",
            Instrument::ExponentialHistogram | Instrument::Histogram => "histogram",
        };
        // OpenMetrics requires that the name ends with the unit.
        let unit = names::unit(family.descriptor).filter(|unit| name.ends_with(&format!("_{unit}")));
        self.header(name, kind, unit, family.descriptor.description);
        for series in &family.series {
            match &series.point.data {
                Data::Histogram(histogram) => self.histogram(family, series, histogram),
                Data::Integer(number) => self.sample(&family.name, &series.labels, None, &number.to_string(), None),
                Data::Double(number) => self.sample(&family.name, &series.labels, None, &number.to_string(), None),
                Data::NoRecordedValue => {}
            }
        }
    }

    fn header(&mut self, name: &str, kind: &str, unit: Option<&str>, help: &str) {
        let quotes: &[char] = if self.dialect == Dialect::OpenMetrics { &['"'] } else { &[] };
        let _ = writeln!(self.text, "# HELP {name} {}", escaped(help, quotes));
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        if let (Dialect::OpenMetrics, Some(unit)) = (self.dialect, unit) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    /// Writes a histogram with powers of two as bounds, because no text format has native histograms. The counts are exact.
    fn histogram(&mut self, family: &Family<'_>, series: &Series<'_>, histogram: &ExponentialHistogram) {
        let exemplars = self.exemplars.of(series.resource, family.descriptor.name, &series.point.attributes);
        let bucket_name = format!("{}_bucket", family.name);
        let mut count = 0;
        for bucket in bounded(histogram, exemplars) {
            count += bucket.count;
            let bound = if bucket.bound.is_finite() { format!("{:?}", bucket.bound) } else { "+Inf".to_owned() };
            self.sample(&bucket_name, &series.labels, Some(&bound), &count.to_string(), bucket.exemplar);
        }
        self.sample(&format!("{}_sum", family.name), &series.labels, None, &histogram.sum.to_string(), None);
        self.sample(&format!("{}_count", family.name), &series.labels, None, &count.to_string(), None);
    }

    fn targets(&mut self, targets: &[Vec<Label>]) {
        if targets.is_empty() {
            return;
        }
        match self.dialect {
            Dialect::Text => self.header(super::TARGET_INFO, "gauge", None, super::TARGET_HELP),
            Dialect::OpenMetrics => self.header("target", "info", None, super::TARGET_HELP),
        }
        targets.iter().for_each(|labels| self.sample(super::TARGET_INFO, labels, None, "1", None));
    }

    fn sample(
        &mut self,
        name: &str,
        labels: &[Label],
        bound: Option<&str>,
        value: &str,
        exemplar: Option<&telemetry::Exemplar>,
    ) {
        self.text.push_str(name);
        self.labels(
            labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(bound.map(|le| ("le", le))),
        );
        let _ = write!(self.text, " {value}");
        if let (Dialect::OpenMetrics, Some(exemplar)) = (self.dialect, exemplar) {
            self.text.push_str(" # ");
            let labels = of_exemplar(exemplar);
            self.labels(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            let milliseconds = exemplar.time.0 / 1_000_000;
            let _ = write!(self.text, " {} {}.{:03}", exemplar.value, milliseconds / 1000, milliseconds % 1000);
        }
        self.text.push('\n');
    }

    fn labels<'l>(&mut self, labels: impl Iterator<Item = (&'l str, &'l str)>) {
        self.text.push('{');
        for (position, (name, value)) in labels.enumerate() {
            let comma = if position == 0 { "" } else { "," };
            let _ = write!(self.text, "{comma}{name}=\"{}\"", escaped(value, &['"']));
        }
        self.text.push('}');
    }
}

/// Returns a text on one line, with a backslash before each backslash and each of `quotes`.
fn escaped(text: &str, quotes: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => escaped.push_str("\\n"),
            '\\' => escaped.push_str("\\\\"),
            letter if quotes.contains(&letter) => escaped.extend(['\\', letter]),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line() {
        assert_eq!(escaped("a\"b\\c\nd", &['"']), r#"a\"b\\c\nd"#);
        assert_eq!(escaped("a\"b\\c\nd", &[]), r#"a"b\\c\nd"#);
    }
}
