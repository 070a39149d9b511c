//! Counts what each limit refused, for the metrics. Which limits exist is listed here; each is enforced elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit that protects the server and its users from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Requests per second of one user.
    RequestsPerUser,
    /// Requests per second of one address before they are logged in.
    RequestsBeforeLogin,
    /// Connections in total, and of one address.
    Connections,
    ConnectionsPerUser,
    WrongPasswords,
    /// Passwords being checked at the same time.
    PendingLogins,
    /// Logs being read at the same time.
    LogReaders,
    HeadSize,
    BodySize,
    /// A TLS handshake that took too long.
    SlowHandshake,
    SlowHead,
    SlowBody,
    /// A client that did not read its reply.
    SlowReader,
    /// Large bodies that waited too long for the memory that others hold.
    LargeBodies,
    /// Tokens of one user.
    Tokens,
}

impl Limit {
    /// All limits with their label in the metrics, in the order of their declaration.
    pub const ALL: [(Limit, &'static str); 15] = [
        (Limit::RequestsPerUser, "requests_per_user"),
        (Limit::RequestsBeforeLogin, "requests_before_login"),
        (Limit::Connections, "connections"),
        (Limit::ConnectionsPerUser, "connections_per_user"),
        (Limit::WrongPasswords, "wrong_passwords"),
        (Limit::PendingLogins, "pending_logins"),
        (Limit::LogReaders, "log_readers"),
        (Limit::HeadSize, "head_size"),
        (Limit::BodySize, "body_size"),
        (Limit::SlowHandshake, "slow_handshake"),
        (Limit::SlowHead, "slow_head"),
        (Limit::SlowBody, "slow_body"),
        (Limit::SlowReader, "slow_reader"),
        (Limit::LargeBodies, "large_bodies"),
        (Limit::Tokens, "tokens"),
    ];
}

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; Limit::ALL.len()]);

impl Refusals {
    pub fn count(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often this limit refused something.
    pub fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_own_counter() {
        for (number, (limit, label)) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number, "{label}");
        }
        let refusals = Refusals::default();
        refusals.count(Limit::BodySize);
        assert_eq!(refusals.of(Limit::BodySize), 1);
        assert_eq!(refusals.of(Limit::SlowReader), 0);
    }
}
