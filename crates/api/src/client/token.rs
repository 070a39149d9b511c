//! The caller's token, and how to get a new one when it is rejected.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::Method;

use super::Client;
use super::ClientError;
use super::call::{Attempt, Call, Replay};
use super::query::Target;
use crate::device_login::{DeviceLogin, DeviceLoginRequest, DeviceLoginState};
use crate::server::{TokenReply, TokenRequest};

/// Where name and password are exchanged for a token.
const LOGIN: &str = "/api-token-auth";

/// The token of one caller, shared by all their connections.
#[derive(Clone, Default)]
pub(super) struct Token {
    known: Arc<Mutex<Option<String>>>,
    /// Held while one connection gets a new token: the others need not.
    renewing: Arc<tokio::sync::Mutex<()>>,
}

impl Token {
    pub(super) fn new(token: Option<String>) -> Token {
        Token {
            known: Arc::new(Mutex::new(token)),
            renewing: Arc::default(),
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

    /// Another token than the rejected one: one that another connection got meanwhile, or a new one.
    pub(super) async fn replace_token(&self, refused: Option<&str>) -> Result<(), Attempt> {
        let _alone = self.token.renewing.lock().await;
        match self.token.get() {
            Some(now) if Some(now.as_str()) != refused => Ok(()),
            _ => self.renew_token().await,
        }
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
        let (response, channel) = self.success(response, channel).await?;
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
        renewed.map_err(|attempt| self.told(attempt.into_error()))
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
