//! When a caller's login ends, ends their requests: the handler, and the body of a reply that is being sent.
//!
//! One place for all routes: a log stream, a download and an upload end in the same way. It also records refusals.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use paddlecloud_accounts::auth::{AuthError, Session};
use paddlecloud_accounts::refusals::{Limit, Refusals};
use paddlecloud_api::RENEW_HEADER;
use paddlecloud_api::error::ErrorName;
use paddlecloud_core::names::UserName;
use paddlecloud_files::queue::{Class, MuchMemory, Queue, Turn};

use super::Shared;
use super::scope::refused;

/// How long a large body waits for others.
const MEMORY_WITHIN: Duration = Duration::from_secs(20);
/// A body of a known size up to this is sent in one piece, and not watched.
const SMALL: u64 = 64 << 10;

/// Where the extractor of a route's scope leaves the session.
#[derive(Clone)]
pub(super) struct SessionSlot(Arc<Slot>);

struct Slot {
    session: OnceLock<Session>,
    /// Unset if the request itself may end its session: then nothing cuts its reply off.
    watched: OnceLock<Session>,
    filled: tokio::sync::Notify,
    queue: Queue,
    refusals: Arc<Refusals>,
    /// What a large body holds until the request is answered. The memory is returned before the next body gets the turn.
    memory: OnceLock<MuchMemory>,
    turn: OnceLock<Turn>,
}

impl SessionSlot {
    fn new(queue: Queue, refusals: Arc<Refusals>) -> SessionSlot {
        SessionSlot(Arc::new(Slot {
            session: OnceLock::new(),
            watched: OnceLock::new(),
            filled: tokio::sync::Notify::new(),
            queue,
            refusals,
            turn: OnceLock::new(),
            memory: OnceLock::new(),
        }))
    }

    /// Waits for the memory that a large body takes. Returns false if it is not free in time.
    pub async fn take_memory(&self) -> bool {
        match self.0.session.get() {
            Some(session) => self.take_memory_of(&session.user).await,
            None => true,
        }
    }

    async fn take_memory_of(&self, user: &UserName) -> bool {
        let turn = self.0.queue.turn(Class::Body, user);
        match tokio::time::timeout(MEMORY_WITHIN, turn).await {
            Ok(turn) => {
                let _ = self.0.turn.set(turn);
                true
            }
            Err(_) => {
                self.0.refusals.count(Limit::LargeBodies);
                false
            }
        }
    }

    /// Returns the memory of a very large body to the system when the request is answered. After every smaller body, that would
    /// cost more than it returns.
    pub fn return_memory(&self) {
        let _ = self.0.memory.set(MuchMemory);
    }

    pub fn fill(&self, session: Session) {
        self.fill_ending(session.clone());
        if self.0.watched.set(session).is_ok() {
            self.0.filled.notify_one();
        }
    }

    /// For a request that may end its own session.
    pub fn fill_ending(&self, session: Session) {
        let _ = self.0.session.set(session);
    }

    /// Waits until the route knows its caller; never for a route that is open to all, or that may end the session.
    async fn watched(&self) -> Session {
        self.0.filled.notified().await;
        match self.0.watched.get() {
            Some(session) => session.clone(),
            None => std::future::pending().await,
        }
    }
}

/// Answers a request until its session ends.
pub(super) async fn end_with_it(State(app): Shared, mut request: Request, next: Next) -> Response {
    let slot = SessionSlot::new(app.queue.clone(), Arc::clone(&app.metrics.refusals));
    request.extensions_mut().insert(slot.clone());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let asked = format!(
        "{} {}",
        request.method(),
        route.as_ref().map_or("", MatchedPath::as_str)
    );
    let ended = async {
        let session = slot.watched().await;
        app.auth.ended(&session).await;
    };
    let mut response = tokio::select! {
        // A reply that is ready is sent.
        biased;
        response = next.run(request) => response,
        () = ended => return refused(AuthError::Revoked).into_response(),
    };
    if slot.0.watched.get().is_some_and(Session::is_due_for_renewal) {
        let name = HeaderName::from_static(RENEW_HEADER);
        response.headers_mut().insert(name, HeaderValue::from_static("1"));
    }
    let is_forbidden = response.extensions().get() == Some(&ErrorName::Forbidden);
    if let Some(session) = slot.0.session.get().filter(|_| is_forbidden) {
        app.record_refusal(&session.user, &asked).await;
    }
    let is_small = response
        .body()
        .size_hint()
        .upper()
        .is_some_and(|size| size <= SMALL);
    match slot.0.watched.get() {
        Some(session) if !is_small => {
            let (app, session) = (Arc::clone(&app), session.clone());
            let over = Box::pin(async move { app.auth.ended(&session).await });
            response.map(|body| Body::new(Guarded { body, over }))
        }
        _ => response,
    }
}

/// A body until its caller's session ends; then an error, so that what is missing does not look like its end.
struct Guarded {
    body: Body,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.over.as_mut().poll(context).is_ready() {
            let broken = io::Error::other("the caller's access has been revoked");
            // Not polled again after it was ready.
            this.over = Box::pin(std::future::pending());
            return Poll::Ready(Some(Err(axum::Error::new(broken))));
        }
        Pin::new(&mut this.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_large_body_that_waits_too_long_is_counted() {
        let (queue, refusals) = (Queue::default(), Arc::new(Refusals::default()));
        let slot = SessionSlot::new(queue.clone(), Arc::clone(&refusals));
        let me = "me".parse().unwrap();
        let taken: Vec<Turn> = std::iter::from_fn(|| queue.turn(Class::Body, &me).now_or_never()).collect();
        assert!(!slot.take_memory_of(&me).await);
        assert_eq!(refusals.of(Limit::LargeBodies), 1);
        drop(taken);
        assert!(slot.take_memory_of(&me).await);
        assert_eq!(refusals.of(Limit::LargeBodies), 1);
    }
}
