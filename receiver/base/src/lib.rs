//! What every part of the sidecar uses: environment, files, texts and facts about the node.

pub mod causes;
pub mod descriptors;
pub mod environment;
pub mod files;
pub mod namespaces;
pub mod node;
pub mod privileges;
pub mod text;
