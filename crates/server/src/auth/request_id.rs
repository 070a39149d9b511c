//! The id of the request that is being answered: the reply, the log and the audit log show the same one.

use super::secret;

tokio::task_local! {
    static CURRENT: String;
}

/// Answers a request under a new id, and gives the id too.
pub async fn with_new<T>(work: impl Future<Output = T>) -> (String, T) {
    let id: String = secret::random()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let done = CURRENT.scope(id.clone(), work).await;
    (id, done)
}

/// The id of this task's request; empty outside of one.
pub fn current() -> String {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

/// The same work as part of this task's request, for a task of its own.
pub fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    CURRENT.scope(current(), work)
}
