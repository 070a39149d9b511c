//! The id of the current request, shown in the reply, the log and the audit log.

use super::secret;

tokio::task_local! {
    static CURRENT: String;
}

/// Runs the work of a request under a new id. Returns the id too.
pub async fn with_new<T>(work: impl Future<Output = T>) -> (String, T) {
    let id: String = secret::random()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let done = CURRENT.scope(id.clone(), work).await;
    (id, done)
}

/// The id of this task's request; empty outside a request.
pub fn current() -> String {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

/// Runs work in another task under the id of this task's request.
pub fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    CURRENT.scope(current(), work)
}
