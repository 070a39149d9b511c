//! The caller's token, and how to get a new one when it is rejected or past half of its lifetime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::Method;
use hyper::header::HeaderMap;

use super::Client;
use super::ClientError;
use super::call::{Attempt, Call, Replay};
use super::query::Target;
use crate::admin::NewTokenReply;
use crate::device_login::{DeviceLogin, DeviceLoginRequest, DeviceLoginState};
use crate::error::ErrorBody;
use crate::server::{TokenReply, TokenRequest};
use crate::{Envelope, RENEW_HEADER};

/// Where name and password are exchanged for a token.
const LOGIN: &str = "/api-token-auth";

/// The token of one caller, shared by all their connections.
#[derive(Clone, Default)]
pub(super) struct Token {
    known: Arc<Mutex<Option<String>>>,
    /// Held while one connection gets a new token: the others need not.
    renewing: Arc<tokio::sync::Mutex<()>>,
    /// Whether an exchange was tried. Once is enough for a command; the token is still valid.
    exchanged: Arc<AtomicBool>,
}

impl Token {
    pub(super) fn new(token: Option<String>) -> Token {
        Token {
            known: Arc::new(Mutex::new(token)),
            renewing: Arc::default(),
            exchanged: Arc::default(),
        }
    }

    pub(super) fn get(&self) -> Option<String> {
        self.lock().clone()
    }

    fn set(&self, token: String) {
        *self.lock() = Some(token);
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// The token to send; fetched first if there is none yet and it can be.
    pub(super) async fn token_to_send(&self) -> Result<Option<String>, Attempt> {
        if self.login.is_some() && self.token.get().is_none() {
            self.replace_token(None).await?;
        }
        Ok(self.token.get())
    }

    /// Gets another token than the rejected one: one that another connection or process got meanwhile, or a new one. Returns false
    /// if there is none.
    pub(super) async fn replace_token(&self, refused: Option<&str>) -> Result<bool, Attempt> {
        let _alone = self.token.renewing.lock().await;
        let is_other = |token: &String| Some(token.as_str()) != refused;
        if self.token.get().as_ref().is_some_and(is_other) {
            return Ok(true);
        }
        // A saved token may have ended too: with a password it is not tried after another one was rejected.
        let may_be_saved = refused.is_none() || self.login.is_none();
        if let Some(saved) = self.saved().filter(|saved| may_be_saved && is_other(saved)) {
            self.token.set(saved);
            return Ok(true);
        }
        self.renew_token().await?;
        Ok(self.login.is_some())
    }

    fn saved(&self) -> Option<String> {
        self.saved_token.as_ref().and_then(|source| source())
    }

    /// Exchanges a saved token if the server's reply says that it is time to. A failure is not an error: the token is
    /// still valid, and the caller waits for its own reply.
    pub(super) async fn exchange_token(&self, token: Option<&str>, headers: &HeaderMap) {
        let is_due = self.saved_token.is_some() && headers.contains_key(RENEW_HEADER);
        let (true, Some(token)) = (is_due, token) else {
            return;
        };
        if self.token.exchanged.swap(true, Ordering::Relaxed) {
            return;
        }
        let exchange = async {
            let _alone = self.token.renewing.lock().await;
            if self.still_saved(token)
                && let Ok(reply) = self.exchange(token).await
                && self.still_saved(token)
            {
                self.take_token(&reply.token);
            }
        };
        let _ = tokio::time::timeout(self.limits.exchange, exchange).await;
    }

    /// Whether this is still the saved token. There is none after a logout; another one, which another command has got, is used from
    /// now on.
    fn still_saved(&self, token: &str) -> bool {
        match self.saved() {
            Some(saved) if saved == token => true,
            Some(saved) => {
                self.token.set(saved);
                false
            }
            None => false,
        }
    }

    async fn exchange(&self, token: &str) -> Result<NewTokenReply, Attempt> {
        let target = Target::new("/tokens").word("renew").maybe("keep_old", Some(true));
        let call = Call::post(target, &serde_json::json!({}));
        let (response, channel) = self.send_json(&call, Some(token)).await?;
        let (response, channel) = self.success(response, channel).await?;
        let bytes = self.whole(response).await?;
        self.keep(channel);
        let reply: Envelope<NewTokenReply> = self.read(&bytes).map_err(Attempt::Final)?;
        Ok(reply.msg)
    }

    /// Exchanges name and password for a token.
    async fn renew_token(&self) -> Result<(), Attempt> {
        let Some((username, password)) = self.login.clone() else {
            return Ok(());
        };
        let body =
            serde_json::to_vec(&TokenRequest { username, password }).expect("two texts always serialize");
        let mut call = Call::new(Method::POST, LOGIN.to_owned()).replay(Replay::Safe);
        call.json = Some(body.into());
        let (response, channel) = self.send_json(&call, None).await?;
        let (response, channel) = self.success(response, channel).await.map_err(without_retry)?;
        let bytes = self.whole(response).await?;
        self.keep(channel);
        let reply: TokenReply = serde_json::from_slice(&bytes)
            .map_err(|_| Attempt::Final(self.broken("sent an unreadable token")))?;
        self.take_token(&reply.token);
        Ok(())
    }

    /// Uses this token from now on, and passes it to the sink.
    pub(super) fn take_token(&self, token: &str) {
        if let Some(sink) = &self.on_token {
            sink(token);
        }
        self.token.set(token.to_owned());
    }

    /// Checks the password now and passes the token to the sink.
    pub async fn login(&self) -> Result<(), ClientError> {
        let renewed = self.renew_token().await;
        renewed.map_err(|attempt| self.classify(attempt.into_error()))
    }

    /// Starts a login with the server's login provider.
    pub async fn device_login(&self) -> Result<DeviceLogin, ClientError> {
        let target = Target::new("/login").word("device");
        self.message(&Call::post(target, &serde_json::json!({}))).await
    }

    /// Waits some seconds for the user to confirm the login. The token, once there is one, is passed to the sink.
    pub async fn device_login_poll(&self, id: &str) -> Result<DeviceLoginState, ClientError> {
        let target = Target::new("/login").word("device").word("token");
        let request = DeviceLoginRequest { id: id.to_owned() };
        let state: DeviceLoginState = self.message(&Call::post(target, &request)).await?;
        if let Some(token) = &state.token {
            self.take_token(token);
        }
        Ok(state)
    }
}

/// A refused password is not sent again automatically, even after a pause: its owner has to know.
fn without_retry(attempt: Attempt) -> Attempt {
    match attempt {
        Attempt::Final(ClientError::Refused(body)) => Attempt::Final(ClientError::Refused(ErrorBody {
            retry_after: None,
            ..body
        })),
        other => other,
    }
}
