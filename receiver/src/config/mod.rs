//! Configuration: the file, its errors, its schema and reference, and the settings that result from flags, environment
//! and file.

mod error;
mod example;
mod file;
mod load;
mod problem;
mod reference;
mod run;
mod schema;
mod settings;
mod show;
pub mod variables;

pub use error::{ConfigError, Position};
pub use example::example;
pub use file::{Compression, File, Headers, Health, Listen, Otlp, Protocol, Resource, SIZE_LIMIT};
pub use reference::markdown;
pub use run::Run;
pub use schema::{EXAMPLE, schema, signal_names};
pub use settings::{Flags, Settings};
pub use show::{Shown, changed};
