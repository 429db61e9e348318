//! Placeholder until runtimes can be asked.
use super::{ContainerId, Metadata, Runtime};
pub struct Answer {
    pub container: ContainerId,
    pub outcome: Result<Metadata, String>,
}
pub struct Directory;
pub struct Statistics;
impl Statistics {
    pub fn queue_full(&self) -> u64 {
        0
    }
}
impl Directory {
    pub fn ask(&self, _: ContainerId, _: Option<Runtime>) -> bool {
        true
    }
    pub async fn answer(&mut self) -> Answer {
        std::future::pending().await
    }
    pub fn statistics(&self) -> Statistics {
        Statistics
    }
}
