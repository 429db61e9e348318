//! Kernel functions that the user adds as layers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::extra::LAYERS;

/// Longest symbol name in the kernel (`KSYM_NAME_LEN`), without the terminating zero, in bytes.
const LONGEST: usize = 511;

/// The name of a kernel function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength" = LONGEST, "examples" = ["ip_rcv_finish"]))]
pub struct FunctionName(String);

impl TryFrom<String> for FunctionName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        let named = name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit());
        if named && name.len() <= LONGEST {
            return Ok(Self(name));
        }
        Err(format!("`{name}` is no name of a kernel function: write letters, digits and `_`, as in `ip_rcv_finish`"))
    }
}

impl FunctionName {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<FunctionName> for String {
    fn from(name: FunctionName) -> Self {
        name.0
    }
}

/// A list of distinct functions, in configuration order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<FunctionName>", into = "Vec<FunctionName>")]
#[schemars(extend("maxItems" = LAYERS, "uniqueItems" = true))]
pub struct Functions(Vec<FunctionName>);

impl Functions {
    /// Returns the names of the functions.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| name.0.as_str())
    }
}

impl TryFrom<Vec<FunctionName>> for Functions {
    type Error = String;

    fn try_from(names: Vec<FunctionName>) -> Result<Self, String> {
        if names.len() > LAYERS {
            return Err(format!("{} functions are too many: name {LAYERS} at most", names.len()));
        }
        let twice = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
        twice.map_or(Ok(()), |(_, name)| Err(format!("`{}` is named twice: leave one out", name.0)))?;
        Ok(Self(names))
    }
}

impl From<Functions> for Vec<FunctionName> {
    fn from(functions: Functions) -> Self {
        functions.0
    }
}
