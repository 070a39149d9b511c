//! The typed client: one method per route, over TCP, TLS or a unix socket.
//!
//! It retries what can be retried, renews a refused token once and names what went wrong. It knows no
//! configuration files and prints nothing.

mod any_route;
mod call;
mod connect;
mod endpoint;
mod error;
pub mod files;
mod log_follow;
mod query;
mod routes;
mod tls;
mod token;
mod unsent;
mod upload;
mod waiting;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use self::any_route::AnyRequest;
use self::connect::Idle;
pub use self::endpoint::{Endpoint, EndpointError};
pub use self::error::ClientError;
pub use self::log_follow::{LogEvent, LogFollow};
pub use self::routes::{JobFilter, new_idempotency_key};
pub use self::tls::{TlsError, TlsOptions};
pub use self::upload::{UploadBody, UploadWriter, upload_channel};

/// Called with every token the server gives out, so that it can be kept.
pub type TokenSink = Box<dyn Fn(&str) + Send + Sync>;

/// Starts a server again that nobody answers for; its error is a sentence that says why it cannot.
pub type Reviver = Box<dyn Fn() -> Revival + Send + Sync>;

/// A start under way.
pub type Revival = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// How the caller proves who they are.
#[derive(Default, Clone)]
pub struct Credentials {
    /// Name and password; traded for a token when there is none or when it is refused.
    pub login: Option<(String, String)>,
    pub token: Option<String>,
}

/// How long each part of a call may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until the connection stands, TLS included.
    pub connect: Duration,
    /// Until the reply begins, counted from the last byte that was sent.
    pub reply: Duration,
    /// Between two pieces of a reply's body.
    pub silence: Duration,
    /// How long a call goes on trying while nothing is heard of the server.
    pub give_up: Duration,
    /// The wait before the second new try; the first goes at once, later ones wait longer.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(10),
            reply: Duration::from_secs(60),
            silence: Duration::from_secs(90),
            give_up: Duration::from_secs(60),
            pause: Duration::from_millis(50),
        }
    }
}

/// One server, one caller. Cheap to use for many calls: the connection is kept open between them.
pub struct Client {
    endpoint: Endpoint,
    tls: TlsOptions,
    login: Option<(String, String)>,
    limits: Limits,
    on_token: Option<Arc<TokenSink>>,
    reviver: Option<Arc<Reviver>>,
    seen: waiting::LastSeen,
    /// Of all that speak for this caller: who renews it renews it for the others.
    token: token::Token,
    state: Mutex<State>,
}

/// What changes from call to call. Never held across an await.
#[derive(Default)]
struct State {
    server_version: Option<String>,
    /// A reply has come: from now on the server is lost, not unreachable.
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

    /// `reviver` is called whenever nobody answers; calls go on with the server it starts.
    pub fn with_reviver(mut self, reviver: Reviver) -> Client {
        self.reviver = Some(Arc::new(reviver));
        self
    }

    /// The same caller of the same server, with connections of its own: another thread may drive them.
    fn beside(&self) -> Client {
        let state = self.state();
        Client {
            endpoint: self.endpoint.clone(),
            tls: self.tls.clone(),
            login: self.login.clone(),
            limits: self.limits,
            on_token: self.on_token.clone(),
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

    /// The version the server named in its last reply.
    pub fn server_version(&self) -> Option<String> {
        self.state().server_version.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
