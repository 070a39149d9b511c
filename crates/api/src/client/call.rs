//! One request and its reply: credentials, limits, retries and errors.
//!
//! `routes` knows which routes exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::connect::Channel;
use super::connect::tls_problem;
use super::query::Target;
use super::unsent::Unsent;
use super::waiting::Waiting;
use super::{Client, ClientError};
use crate::ALIVE_HEADER;
use crate::error::{ErrorBody, ErrorName};

/// The body of any request.
pub(super) type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// The largest JSON reply; anything larger is not from our server.
const MAX_REPLY: usize = 256 << 20;
/// How often it is checked whether a request is still being sent.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether a request may be repeated when its reply was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The request is idempotent.
    Safe,
    Never,
}

/// What happens to a call when no server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnAbsence {
    /// It fails immediately.
    Fail,
    /// A server that has answered before is waited for.
    Wait,
}

/// A request that can be built again for every attempt.
pub struct Call {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) json: Option<Bytes>,
    pub(super) key: Option<String>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) replay: Replay,
    /// Added to the limit for the reply: how long the server may wait on purpose.
    pub(super) patience: Duration,
    /// Whether the server is asked to signal now and then that it is still working.
    lasts: bool,
    /// A reply was lost: the next one may report what the first request did.
    was_lost: AtomicBool,
}

impl Call {
    /// A call that may be sent again, unless it is a `POST`.
    pub fn new(method: Method, target: String) -> Call {
        let replay = if method == Method::POST {
            Replay::Never
        } else {
            Replay::Safe
        };
        Call {
            method,
            target,
            json: None,
            key: None,
            headers: Vec::new(),
            replay,
            patience: Duration::ZERO,
            lasts: false,
            was_lost: AtomicBool::new(false),
        }
    }

    /// A `GET`.
    pub fn get(target: Target) -> Call {
        Call::new(Method::GET, target.into_string())
    }

    /// A `POST` of JSON.
    pub fn post(target: Target, body: &impl serde::Serialize) -> Call {
        let json = serde_json::to_vec(body).expect("wire types always serialize");
        Call {
            json: Some(json.into()),
            ..Call::new(Method::POST, target.into_string())
        }
    }

    /// Says whether it may be sent again.
    pub fn replay(mut self, replay: Replay) -> Call {
        self.replay = replay;
        self
    }

    /// For long work: a server that can signal that it is still working is waited for without a limit, any other for
    /// this long.
    pub fn lasting(mut self, patience: Duration) -> Call {
        (self.patience, self.lasts) = (patience, true);
        self
    }

    /// Whether an earlier attempt may already have had an effect.
    pub fn was_lost(&self) -> bool {
        self.was_lost.load(Ordering::Relaxed)
    }
}

/// A reply whose body is still to come. The connection is reused once the body was read to its end.
pub struct Opened {
    response: Response<Incoming>,
    channel: Option<Channel>,
}

impl Opened {
    /// The reply's headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next bytes; `None` at the end.
    pub async fn piece(&mut self, client: &Client) -> Result<Option<Bytes>, ClientError> {
        let piece = client.piece(self.response.body_mut()).await?;
        if piece.is_none()
            && let Some(channel) = self.channel.take()
        {
            client.keep(channel);
        }
        Ok(piece)
    }
}

/// Why one attempt failed, and whether the server may have seen the request.
pub(super) enum Attempt {
    /// Nothing was sent.
    NotSent(ClientError),
    /// The connection broke before the reply was complete.
    Lost(ClientError),
    /// A reply, or a local error: a retry changes nothing.
    Final(ClientError),
}

impl Attempt {
    pub(super) fn into_error(self) -> ClientError {
        match self {
            Attempt::NotSent(error) | Attempt::Lost(error) | Attempt::Final(error) => error,
        }
    }
}

impl Client {
    /// Sends the call and reads the whole reply as JSON.
    pub(super) async fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        self.read(&self.bytes(call).await?)
    }

    /// What a whole reply says.
    pub fn read<T: DeserializeOwned>(&self, bytes: &Bytes) -> Result<T, ClientError> {
        serde_json::from_slice(bytes)
            .map_err(|error| self.broken(format!("sent an unreadable reply: {error}")))
    }

    /// Sends the call and reads the whole reply.
    pub(super) async fn bytes(&self, call: &Call) -> Result<Bytes, ClientError> {
        self.tried(call, OnAbsence::Fail).await
    }

    /// Sends the call and reads the whole reply. Retries where that is harmless, until the server was unreachable for
    /// too long.
    pub async fn tried(&self, call: &Call, absence: OnAbsence) -> Result<Bytes, ClientError> {
        let mut waiting = Waiting::begin();
        // A server that is being restarted answers soon, so even the first failure is retried.
        let is_known = absence == OnAbsence::Wait && self.state().reached;
        let mut is_hopeful = is_known || self.reviver.is_some();
        loop {
            let failure = match self.once(call).await {
                Ok(bytes) => return Ok(bytes),
                Err(failure) => failure,
            };
            let (error, again) = match failure {
                Attempt::Final(error) => {
                    // What was refused by a limit had no effect.
                    let limited = error.refusal() == Some(ErrorName::TooManyRequests);
                    let again = (limited && error.retry_after().is_some())
                        || (error.is_temporary() && call.replay == Replay::Safe);
                    (error, again)
                }
                Attempt::NotSent(error) => (error, is_hopeful),
                Attempt::Lost(error) => {
                    is_hopeful = true;
                    call.was_lost.store(true, Ordering::Relaxed);
                    (error, call.replay == Replay::Safe)
                }
            };
            if !again || !waiting.pause_after(self, &error).await {
                return Err(self.classify(error));
            }
        }
    }

    async fn once(&self, call: &Call) -> Result<Bytes, Attempt> {
        let (response, channel) = self.respond(call).await?;
        self.to_the_end(response, channel).await
    }

    /// The whole reply that begins like a success, unless its end reports an error.
    async fn to_the_end(&self, response: Response<Incoming>, channel: Channel) -> Result<Bytes, Attempt> {
        let began_early = response.headers().contains_key(ALIVE_HEADER);
        let bytes = self.whole(response).await?;
        self.keep(channel);
        match began_early {
            true => refused_after_all(bytes),
            false => Ok(bytes),
        }
    }

    /// Sends the call and returns the reply as soon as it begins, if it is a success. The connection is kept.
    pub async fn open(&self, call: &Call) -> Result<Opened, ClientError> {
        match self.respond(call).await {
            Ok((response, channel)) => Ok(Opened {
                response,
                channel: Some(channel),
            }),
            Err(attempt) => Err(self.classify(attempt.into_error())),
        }
    }

    /// One attempt, and a second one with a new token if the token was rejected.
    pub(super) async fn respond(&self, call: &Call) -> Result<(Response<Incoming>, Channel), Attempt> {
        let token = self.token_to_send().await?;
        let (response, channel) = self.send_json(call, token.as_deref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED || !self.replace_token(token.as_deref()).await? {
            self.exchange_token(token.as_deref(), response.headers()).await;
            return self.success(response, channel).await;
        }
        drop(channel);
        let (response, channel) = self.send_json(call, self.token.get().as_deref()).await?;
        self.success(response, channel).await
    }

    pub(super) async fn send_json(
        &self,
        call: &Call,
        token: Option<&str>,
    ) -> Result<(Response<Incoming>, Channel), Attempt> {
        let limit = self.limits.reply + call.patience;
        loop {
            let mut channel = self.channel().await?;
            let body = Full::new(call.json.clone().unwrap_or_default());
            let body = body.map_err(|never| match never {}).boxed_unsync();
            let request = self.request(call, token, body);
            let moved = Moved::unsent(&channel.unsent);
            let sent = self.watch(limit, &moved, channel.sender.send_request(request));
            match sent.await {
                Some(Ok(response)) => {
                    self.note_server(&response);
                    return Ok((response, channel));
                }
                // The server has just closed a kept connection; hyper says that it read nothing from us.
                Some(Err(error)) if channel.reused && error.is_canceled() => {}
                Some(Err(_)) if channel.reused && call.replay == Replay::Safe => {
                    call.was_lost.store(true, Ordering::Relaxed);
                }
                Some(Err(error)) if error.is_canceled() => {
                    self.mark_reached();
                    return Err(Attempt::NotSent(self.broken("closed the connection")));
                }
                Some(Err(error)) => {
                    self.mark_reached();
                    return Err(self.lost_reply(&error));
                }
                None => return Err(Attempt::Lost(self.no_reply(call, limit))),
            }
        }
    }

    /// A server accepted a connection and closed it: if the next connection fails, it is being restarted.
    fn mark_reached(&self) {
        self.seen.now();
        self.state().reached = true;
    }

    fn no_reply(&self, call: &Call, limit: Duration) -> ClientError {
        let seconds = limit.as_secs();
        self.broken(match call.lasts {
            false => format!("did not reply within {seconds} s"),
            true => format!(
                "did not reply within {seconds} s and may still be working on the request: check the result before you retry"
            ),
        })
    }

    fn lost_reply(&self, error: &hyper::Error) -> Attempt {
        match tls_alert(error) {
            Some(alert) => Attempt::Final(self.unreachable(tls_problem(&alert.to_string()))),
            None if error.is_parse() => Attempt::Final(self.broken(format!("does not speak HTTP: {error}"))),
            None => Attempt::Lost(self.broken(format!("closed the connection before it replied: {error}"))),
        }
    }

    /// Sends a body once. `progress` counts its bytes as they are sent; the limit counts from the last of them.
    pub async fn send_body(
        &self,
        call: &Call,
        body: RequestBody,
        progress: &Arc<AtomicU64>,
    ) -> Result<Bytes, ClientError> {
        let classify = |attempt: Attempt| self.classify(attempt.into_error());
        let token = self.token_to_send().await.map_err(classify)?;
        let mut channel = self.channel().await.map_err(classify)?;
        let request = self.request(call, token.as_deref(), body);
        let limit = self.limits.reply + call.patience;
        let moved = Moved::body(progress, &channel.unsent);
        let sending = channel.sender.send_request(request);
        let response = match self.watch(limit, &moved, sending).await {
            None => {
                let problem = format!("accepted no data for {} s", limit.as_secs());
                return Err(self.broken(problem));
            }
            Some(Ok(response)) => response,
            Some(Err(error)) if error.is_user() => {
                return Err(ClientError::Upload(std::io::Error::other(error)));
            }
            Some(Err(error)) => {
                self.mark_reached();
                return Err(self.broken(format!("closed the connection during the upload: {error}")));
            }
        };
        self.note_server(&response);
        let is_rejected = response.status() == StatusCode::UNAUTHORIZED;
        if is_rejected && self.replace_token(token.as_deref()).await.map_err(classify)? {
            drop(channel);
            // The body is used up; the caller must send it again.
            return Err(self.broken("rejected the token during an upload; a new one was fetched"));
        }
        let received = match self.success(response, channel).await {
            Ok((response, channel)) => self.to_the_end(response, channel).await,
            Err(attempt) => Err(attempt),
        };
        received.map_err(Attempt::into_error)
    }

    /// Waits for `reply` as long as bytes keep moving; `None` if nothing moved for `limit`.
    async fn watch<F: Future>(&self, limit: Duration, moved: &Moved, reply: F) -> Option<F::Output> {
        let mut reply = std::pin::pin!(reply);
        let (mut before, mut since) = (moved.look(), Instant::now());
        loop {
            if let Ok(output) = tokio::time::timeout(limit.min(LOOK_EVERY), reply.as_mut()).await {
                return Some(output);
            }
            let now = moved.look();
            if now != before {
                (before, since) = (now, Instant::now());
                self.seen.now();
            } else if since.elapsed() >= limit {
                return None;
            }
        }
    }

    fn request(&self, call: &Call, token: Option<&str>, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = format!("{}{}", self.endpoint.base(), call.target)
            .parse()
            .expect("targets are percent-encoded");
        let headers = request.headers_mut();
        let plain = |text: String| HeaderValue::try_from(text).ok();
        headers.extend(plain(self.endpoint.authority()).map(|host| (HOST, host)));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("paddlectl/", env!("CARGO_PKG_VERSION"))),
        );
        if call.json.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(mut token) = token.and_then(|token| plain(format!("Token {token}"))) {
            token.set_sensitive(true);
            headers.insert(AUTHORIZATION, token);
        }
        if let Some(key) = call.key.clone().and_then(plain) {
            headers.insert(crate::IDEMPOTENCY_HEADER, key);
        }
        if call.lasts {
            headers.insert(ALIVE_HEADER, HeaderValue::from_static("1"));
        }
        headers.extend(call.headers.iter().cloned());
        request
    }

    fn note_server(&self, response: &Response<Incoming>) {
        self.seen.now();
        self.state().reached = true;
        let version = response.headers().get(crate::VERSION_HEADER);
        if let Some(version) = version.and_then(|value| value.to_str().ok()) {
            self.state().server_version = Some(version.to_owned());
        }
    }

    /// Passes a success on and turns everything else into a refusal.
    pub(super) async fn success(
        &self,
        response: Response<Incoming>,
        channel: Channel,
    ) -> Result<(Response<Incoming>, Channel), Attempt> {
        let status = response.status();
        if status.is_success() {
            return Ok((response, channel));
        }
        let retry_after = retry_after(response.headers());
        let bytes = self.whole(response).await?;
        self.keep(channel);
        Err(Attempt::Final(
            match serde_json::from_slice::<ErrorBody>(&bytes) {
                Ok(body) => ClientError::Refused(ErrorBody { retry_after, ..body }),
                Err(_) => self.strange(status, &bytes),
            },
        ))
    }

    /// A reply of another program: a proxy, an old server, a wrong address.
    fn strange(&self, status: StatusCode, bytes: &[u8]) -> ClientError {
        if bytes.is_empty() && status == StatusCode::NOT_FOUND {
            return ClientError::Refused(ErrorBody::new(ErrorName::NotFound, "not found"));
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]);
        let line: String = text.lines().next().unwrap_or("").chars().take(120).collect();
        let said = if line.trim().is_empty() {
            String::new()
        } else {
            format!(": {}", line.trim())
        };
        self.broken(format!(
            "replied {status} and may not be a PaddleCloud server{said}"
        ))
    }

    pub(super) async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, Attempt> {
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        while let Some(piece) = self.piece(&mut body).await.map_err(Attempt::Lost)? {
            if bytes.len() + piece.len() > MAX_REPLY {
                return Err(Attempt::Final(self.broken("sent a reply that is too large")));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// The next bytes of a body; `None` at its end.
    pub(super) async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, ClientError> {
        loop {
            match tokio::time::timeout(self.limits.silence, body.frame()).await {
                Err(_) => {
                    let problem = format!("sent nothing for {} s", self.limits.silence.as_secs());
                    return Err(self.broken(problem));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    self.seen.now();
                    return Err(
                        self.broken(format!("closed the connection in the middle of a reply: {error}"))
                    );
                }
                Ok(Some(Ok(frame))) => {
                    self.seen.now();
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// Shows that a request is being sent: bytes passed to the system, and those of them not yet confirmed.
struct Moved {
    progress: Option<Arc<AtomicU64>>,
    unsent: Unsent,
}

impl Moved {
    fn unsent(unsent: &Unsent) -> Moved {
        Moved {
            progress: None,
            unsent: unsent.clone(),
        }
    }

    fn body(progress: &Arc<AtomicU64>, unsent: &Unsent) -> Moved {
        Moved {
            progress: Some(progress.clone()),
            unsent: unsent.clone(),
        }
    }

    fn look(&self) -> (Option<u64>, Option<u64>) {
        let progress = self.progress.as_ref();
        let handed_over = progress.map(|bytes| bytes.load(Ordering::Relaxed));
        (handed_over, self.unsent.bytes())
    }
}

/// A reply that began before the result was known reports the result in its body.
fn refused_after_all(bytes: Bytes) -> Result<Bytes, Attempt> {
    match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(body) => Err(Attempt::Final(ClientError::Refused(body))),
        Err(_) => Ok(bytes),
    }
}

/// The pause that the server asks for, in seconds. Other programs may send a date, which is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A server rejects a client certificate only after the client considers the connection established.
fn tls_alert(error: &hyper::Error) -> Option<String> {
    let source = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    let inner = source.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(inner.to_string())
}
