//! The typed client: one method per route, over TCP, TLS or a Unix socket.
//!
//! It retries what can be retried, renews a token that is old or rejected and names what went wrong. It reads no configuration
//! files and prints nothing. The client of the file service is a separate crate, `transfer`, built on the calls that
//! are public here.

mod admin;
mod any_route;
mod call;
mod connect;
mod endpoint;
mod error;
mod log_follow;
mod query;
mod routes;
mod tls;
mod token;
pub mod trust;
mod unsent;
mod upload;
mod waiting;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use self::any_route::AnyRequest;
pub use self::call::{Call, OnAbsence, Opened, Replay};
use self::connect::Idle;
pub use self::endpoint::{Endpoint, EndpointError};
pub use self::error::ClientError;
pub use self::log_follow::{LogEvent, LogFollow};
pub use self::query::Target;
pub use self::routes::{AS_LONG_AS_ANY, JobFilter, TREES, new_idempotency_key};
pub use self::tls::{TlsError, TlsOptions, certificate_user};
pub use self::upload::{UploadBody, UploadWriter, upload_channel};
pub use self::waiting::Waiting;

/// Called with every token the server issues, so that it can be saved.
pub type TokenSink = Box<dyn Fn(&str) + Send + Sync>;

/// Reads the saved token, which another process of the same user may have replaced.
pub type TokenSource = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Restarts a server that does not answer; its error says why it cannot.
pub type Reviver = Box<dyn Fn() -> Revival + Send + Sync>;

/// A start in progress.
pub type Revival = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// How the caller authenticates.
#[derive(Default, Clone)]
pub struct Credentials {
    /// Name and password; exchanged for a token if there is none or it was rejected.
    pub login: Option<(String, String)>,
    pub token: Option<String>,
}

/// How long each part of a call may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until the connection is established, including TLS.
    pub connect: Duration,
    /// Until the reply begins, counted from the last byte sent.
    pub reply: Duration,
    /// Between two pieces of a reply's body.
    pub silence: Duration,
    /// How long a call waits for the exchange of its token.
    pub exchange: Duration,
    /// How long a call retries while the server does not answer.
    pub give_up: Duration,
    /// The pause before the second retry; the first retry is immediate, later pauses are longer.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(10),
            reply: Duration::from_secs(60),
            silence: Duration::from_secs(90),
            exchange: Duration::from_secs(3),
            give_up: Duration::from_secs(60),
            pause: Duration::from_millis(50),
        }
    }
}

/// One server, one caller. Many calls are cheap: the connection is kept open between them.
pub struct Client {
    endpoint: Endpoint,
    tls: TlsOptions,
    login: Option<(String, String)>,
    limits: Limits,
    on_token: Option<Arc<TokenSink>>,
    saved_token: Option<Arc<TokenSource>>,
    reviver: Option<Arc<Reviver>>,
    seen: waiting::LastSeen,
    /// Shared by all clients of this caller: one renews it for all.
    token: token::Token,
    state: Mutex<State>,
}

/// What changes from call to call. Never held across an await.
#[derive(Default)]
struct State {
    server_version: Option<String>,
    /// A reply has arrived, or a connection broke: from now on the server is lost, not unreachable.
    reached: bool,
    idle: Vec<Idle>,
    tls_config: Option<tls::SharedConfig>,
}

impl Client {
    pub fn new(endpoint: Endpoint) -> Client {
        Client {
            endpoint,
            tls: TlsOptions::default(),
            login: None,
            limits: Limits::default(),
            on_token: None,
            saved_token: None,
            reviver: None,
            seen: waiting::LastSeen::default(),
            token: token::Token::default(),
            state: Mutex::default(),
        }
    }

    pub fn with_credentials(mut self, credentials: Credentials) -> Client {
        self.login = credentials.login;
        self.token = token::Token::new(credentials.token);
        self
    }

    pub fn with_tls(mut self, tls: TlsOptions) -> Client {
        self.tls = tls;
        self
    }

    pub fn with_limits(mut self, limits: Limits) -> Client {
        self.limits = limits;
        self
    }

    /// `sink` gets every new token; the client itself keeps it only in memory.
    pub fn on_new_token(mut self, sink: TokenSink) -> Client {
        self.on_token = Some(Arc::new(sink));
        self
    }

    /// The token is a saved one: it is renewed in time, and read again if it is rejected.
    pub fn with_saved_token(mut self, source: TokenSource) -> Client {
        self.saved_token = Some(Arc::new(source));
        self
    }

    /// `reviver` is called whenever no server answers; calls continue with the server it starts.
    pub fn with_reviver(mut self, reviver: Reviver) -> Client {
        self.reviver = Some(Arc::new(reviver));
        self
    }

    /// The same caller of the same server, with separate connections, which another thread may use.
    pub fn with_separate_connections(&self) -> Client {
        let state = self.state();
        Client {
            endpoint: self.endpoint.clone(),
            tls: self.tls.clone(),
            login: self.login.clone(),
            limits: self.limits,
            on_token: self.on_token.clone(),
            saved_token: self.saved_token.clone(),
            reviver: self.reviver.clone(),
            seen: self.seen.clone(),
            token: self.token.clone(),
            state: Mutex::new(State {
                server_version: state.server_version.clone(),
                reached: state.reached,
                idle: Vec::new(),
                tls_config: state.tls_config.clone(),
            }),
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The server's version in its last reply.
    pub fn server_version(&self) -> Option<String> {
        self.state().server_version.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
