//! The outputs: `table`, `json`, `json=FILE`, `otlp`. Command line and configuration file share these types.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nearest;

const TABLE: &str = "table";
const JSON: &str = "json";

/// The destination of JSON lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    StandardOutput,
    /// A file, which is created if it does not exist.
    File(PathBuf),
}

/// One output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "output", "pattern" = "^(table|otlp|json(=.+)?)$"))]
pub enum Output {
    /// A live table on standard output.
    Table,
    /// OTLP/JSON, one request per line.
    Json(Destination),
    /// OTLP to a collector.
    Otlp,
}

impl Output {
    /// The names of the outputs.
    pub const KINDS: [&str; 3] = [Self::OTLP, JSON, TABLE];
    /// The name of the output to a collector.
    pub const OTLP: &str = "otlp";

    /// Returns true if the output writes to standard output. At most one output can.
    #[must_use]
    pub const fn is_standard_output(&self) -> bool {
        matches!(self, Self::Table | Self::Json(Destination::StandardOutput))
    }
}

/// An invalid output or an invalid combination of outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// An unknown name.
    #[error("unknown output `{name}`{}: the outputs are `table`, `json`, `json=FILE` and `otlp`", nearest::question(name, &Output::KINDS))]
    Unknown {
        /// The text in the configuration.
        name: String,
    },
    /// A file name for the table.
    #[error("`{TABLE}` takes no file, `{0}` was given: for a file use `json=FILE`")]
    TableFile(String),
    /// A file name or an endpoint for OTLP.
    #[error(
        "`otlp` takes no file or address, `{0}` was given: the collector's address is `otlp.endpoint` in the \
         configuration file or OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    OtlpFile(String),
    /// `json=` without a file name.
    #[error("`{JSON}=` names no file: write `json=FILE`, or `json` for standard output")]
    NoFile,
    /// An empty list.
    #[error("the list of outputs is empty: name one, or leave the key out for the default")]
    Empty,
    /// A duplicate output.
    #[error("output `{0}` is given twice: leave one out")]
    Twice(Output),
    /// Two outputs on standard output.
    #[error("outputs `{0}` and `{1}` both write to standard output: keep one, or give JSON a file (`json=FILE`)")]
    StandardOutput(Output, Output),
}

impl FromStr for Output {
    type Err = OutputError;

    fn from_str(text: &str) -> Result<Self, OutputError> {
        let (name, file) = text.split_once('=').map_or((text, None), |(name, file)| (name, Some(file)));
        match (name, file) {
            (TABLE, None) => Ok(Self::Table),
            (Self::OTLP, None) => Ok(Self::Otlp),
            (JSON, None) => Ok(Self::Json(Destination::StandardOutput)),
            (JSON, Some("")) => Err(OutputError::NoFile),
            (JSON, Some(file)) => Ok(Self::Json(Destination::File(file.into()))),
            (TABLE, Some(file)) => Err(OutputError::TableFile(file.to_owned())),
            (Self::OTLP, Some(file)) => Err(OutputError::OtlpFile(file.to_owned())),
            _ => Err(OutputError::Unknown { name: name.to_owned() }),
        }
    }
}

impl TryFrom<String> for Output {
    type Error = OutputError;

    fn try_from(text: String) -> Result<Self, OutputError> {
        text.parse()
    }
}

impl From<Output> for String {
    fn from(output: Output) -> Self {
        output.to_string()
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table => f.write_str(TABLE),
            Self::Otlp => f.write_str(Self::OTLP),
            Self::Json(Destination::StandardOutput) => f.write_str(JSON),
            Self::Json(Destination::File(file)) => write!(f, "{JSON}={}", file.display()),
        }
    }
}

/// A valid list of outputs: no duplicates, at most one on standard output. A list of the configuration has at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<Output>", into = "Vec<Output>")]
#[schemars(extend("minItems" = 1, "uniqueItems" = true))]
pub struct Outputs(Vec<Output>);

impl Outputs {
    /// Returns a list of one output.
    #[must_use]
    pub fn only(output: Output) -> Self {
        Self(vec![output])
    }

    /// Returns an empty list, for a sidecar that only answers readers.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Returns true for [`Self::none`].
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the outputs in configuration order.
    pub fn iter(&self) -> std::slice::Iter<'_, Output> {
        self.0.iter()
    }

    /// Returns the files of the outputs, in configuration order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|output| match output {
            Output::Json(Destination::File(path)) => Some(path.as_path()),
            _ => None,
        })
    }

    /// Returns true if the table is one of the outputs.
    #[must_use]
    pub fn has_table(&self) -> bool {
        self.0.contains(&Output::Table)
    }

    /// Returns true if the table is the only output, which means interactive use.
    #[must_use]
    pub fn is_table_only(&self) -> bool {
        self.0 == [Output::Table]
    }
}

impl TryFrom<Vec<Output>> for Outputs {
    type Error = OutputError;

    fn try_from(outputs: Vec<Output>) -> Result<Self, OutputError> {
        if outputs.is_empty() {
            return Err(OutputError::Empty);
        }
        for (position, output) in outputs.iter().enumerate() {
            let earlier = &outputs[..position];
            if earlier.contains(output) {
                return Err(OutputError::Twice(output.clone()));
            }
            if output.is_standard_output()
                && let Some(other) = earlier.iter().find(|other| other.is_standard_output())
            {
                return Err(OutputError::StandardOutput(other.clone(), output.clone()));
            }
        }
        Ok(Self(outputs))
    }
}

impl From<Outputs> for Vec<Output> {
    fn from(outputs: Outputs) -> Self {
        outputs.0
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{read_back::assert_read_back_or_refused, variants::variants},
        *,
    };

    proptest::proptest! {
        #[test]
        fn odd_outputs_are_read_or_refused(text in variants(&["table", "json", "json=/var/log/a.jsonl", "otlp", "json="])) {
            assert_read_back_or_refused(&text, Output::from_str)?;
        }
    }

    fn outputs(texts: &[&str]) -> Result<Outputs, OutputError> {
        texts.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>()?.try_into()
    }

    #[test]
    fn every_error_names_a_remedy() {
        let cases: [&[&str]; 10] = [
            &["tabel"],
            &["prometheus"],
            &[""],
            &["table=out.txt"],
            &["otlp=http://localhost:4317"],
            &["json="],
            &[],
            &["otlp", "otlp"],
            &["json=a", "json=a"],
            &["table", "json=a", "json"],
        ];
        let refusals = cases.map(|case| outputs(case).expect_err("refused").to_string());
        insta::assert_snapshot!(refusals.join("\n"), @"
        unknown output `tabel` (did you mean `table`?): the outputs are `table`, `json`, `json=FILE` and `otlp`
        unknown output `prometheus`: the outputs are `table`, `json`, `json=FILE` and `otlp`
        unknown output ``: the outputs are `table`, `json`, `json=FILE` and `otlp`
        `table` takes no file, `out.txt` was given: for a file use `json=FILE`
        `otlp` takes no file or address, `http://localhost:4317` was given: the collector's address is `otlp.endpoint` in the configuration file or OTEL_EXPORTER_OTLP_ENDPOINT
        `json=` names no file: write `json=FILE`, or `json` for standard output
        the list of outputs is empty: name one, or leave the key out for the default
        output `otlp` is given twice: leave one out
        output `json=a` is given twice: leave one out
        outputs `table` and `json` both write to standard output: keep one, or give JSON a file (`json=FILE`)
        ");
    }

    #[test]
    fn every_output_reads_back() {
        for text in ["table", "json", "json=a=b", "otlp"] {
            assert_eq!(text.parse::<Output>().map(|output| output.to_string()), Ok(text.to_owned()));
        }
        assert!(outputs(&["json", "json=a", "json=b", "otlp"]).is_ok());
    }
}
