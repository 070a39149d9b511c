//! Logins that wait for their users. They are kept in memory: after a restart of the server, users start again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::DeviceCode;
use crate::auth::random_bytes;
use crate::connections::network;

/// Logins that may wait at the same time.
const MOST: usize = 256;
/// The same for one address.
const MOST_OF_ADDRESS: usize = 16;

/// The secret id of a login, known only to the client that started it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoginId(String);

impl LoginId {
    pub fn new(text: &str) -> LoginId {
        LoginId(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Too many logins wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many logins wait to be confirmed")]
pub struct TooManyLogins;

/// A login that waits.
pub struct Pending {
    pub device_code: String,
    pub expires: Instant,
    address: Option<IpAddr>,
    /// Held by the one client request that polls.
    pub turn: tokio::sync::Mutex<NextPoll>,
}

/// When the provider may be asked next.
pub struct NextPoll {
    pub next: Instant,
    pub interval: Duration,
}

/// All logins that wait.
#[derive(Default)]
pub struct PendingLogins(Mutex<HashMap<LoginId, Arc<Pending>>>);

impl PendingLogins {
    /// Whether another login may be started from this address.
    pub fn check(&self, address: Option<IpAddr>) -> Result<(), TooManyLogins> {
        let address = address.map(network);
        let mut logins = self.lock();
        logins.retain(|_, login| login.expires > Instant::now());
        let own = logins.values().filter(|login| login.address == address).count();
        match logins.len() >= MOST || own >= MOST_OF_ADDRESS {
            true => Err(TooManyLogins),
            false => Ok(()),
        }
    }

    /// Keeps a started login.
    pub fn add(&self, code: &DeviceCode, address: Option<IpAddr>) -> Result<LoginId, TooManyLogins> {
        self.check(address)?;
        let id: String = random_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let id = LoginId(id);
        let interval = Duration::from_secs(code.interval.unwrap_or(super::USUAL_INTERVAL));
        let pending = Pending {
            device_code: code.device_code.clone(),
            expires: Instant::now() + Duration::from_secs(code.expires_in),
            address: address.map(network),
            turn: tokio::sync::Mutex::new(NextPoll {
                next: Instant::now() + interval,
                interval,
            }),
        };
        self.lock().insert(id.clone(), Arc::new(pending));
        Ok(id)
    }

    /// A login that has not expired.
    pub fn find(&self, id: &LoginId) -> Option<Arc<Pending>> {
        let found = self.lock().get(id).cloned();
        found.filter(|login| login.expires > Instant::now())
    }

    pub fn remove(&self, id: &LoginId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LoginId, Arc<Pending>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
