//! The replacement of a running delivery's transport.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// A place for the next transport. Clones share it.
pub(super) struct Replacement<T>(Arc<Shared<T>>);

struct Shared<T> {
    next: Mutex<Option<T>>,
    is_set: Notify,
}

impl<T> Clone for Replacement<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Replacement<T> {
    fn default() -> Self {
        Self(Arc::new(Shared { next: Mutex::new(None), is_set: Notify::new() }))
    }
}

impl<T> Replacement<T> {
    /// Sets the next transport. It replaces one that the delivery has not taken yet.
    pub(super) fn set(&self, transport: T) {
        *self.0.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(transport);
        self.0.is_set.notify_one();
    }

    /// Waits for the next transport. Cancel safe.
    pub(super) async fn wait(&self) -> T {
        loop {
            let next = self.0.next.lock().unwrap_or_else(PoisonError::into_inner).take();
            match next {
                Some(transport) => return transport,
                None => self.0.is_set.notified().await,
            }
        }
    }
}
