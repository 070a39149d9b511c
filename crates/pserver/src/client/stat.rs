//! Asks servers for statistics, without taking part in a job.

use std::sync::Arc;
use std::time::Duration;

use crate::hello::{Identity, OBSERVER, RunSecret};
use crate::message::Request;

use super::{ClientError, Link, LinkConfig, Listener, Sink};

/// The statistics of servers, as JSON, for a client that does not train.
pub fn stat(
    addresses: &[String],
    secret: Option<&RunSecret>,
    patience: Duration,
) -> Vec<Result<String, ClientError>> {
    struct Silent;
    impl Listener for Silent {
        fn waiting(&self, _: u32, _: &str) {}
    }
    let ask = |address: &String| {
        let mut link = Link::new(LinkConfig {
            address: address.clone(),
            identity: Identity {
                trainer: OBSERVER,
                trainers: 0,
                attempt: 0,
                server: 0,
                servers: 0,
                lane: 0,
            },
            secret: secret.cloned(),
            patience,
            follows_restarts: false,
            shares_memory: false,
            listener: Arc::new(Silent),
        });
        let mut text = Vec::new();
        link.ask(&Request::Stat, &[], Sink::Collect(&mut text))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    addresses.iter().map(ask).collect()
}
