//! Pushes: gradients with the rate and the constants of their update.

use std::sync::Arc;

use crate::message::{Code, Encoding, Entry, EntryKind, Request};
use crate::optimizer::{Optimizer, OutOfRange, Pace, Range, ranged};

use super::{Client, ClientError, Exchange, exchange, pieces};

impl Client {
    /// Adds dense gradients to this trainer's step. In asynchronous modes they change the model immediately.
    pub fn push(&mut self, gradients: &[(&str, &[f32])], pace: Pace) -> Result<(), ClientError> {
        self.push_with(gradients, pace, None)
    }

    /// The same with rate and constants of its own for this update.
    pub fn push_with(
        &mut self,
        gradients: &[(&str, &[f32])],
        pace: Pace,
        optimizer: Option<Arc<Optimizer>>,
    ) -> Result<(), ClientError> {
        check_terms(pace, optimizer.as_deref())?;
        let mut entries = Vec::new();
        for (name, values) in gradients {
            entries.push((self.dense(name, values.len())?, *name, *values));
        }
        let compressed = self.compress(&entries)?;
        let mut exchanges = Vec::new();
        for server in 0..self.servers() {
            let mut body = Vec::new();
            let mut heads = Vec::new();
            for (at, ((place, layout), _, values)) in entries.iter().enumerate() {
                if layout.local_elements(server) == 0 {
                    continue;
                }
                let encoding = match compressed.get(at) {
                    Some(of_servers) => {
                        let portion = &of_servers[server as usize];
                        body.push(&portion.bytes[..]);
                        portion.encoding
                    }
                    None => {
                        body.extend(pieces(values, layout, server));
                        Encoding::F32
                    }
                };
                heads.push(Entry {
                    tensor: place.id,
                    rate: pace.rate,
                    optimizer: optimizer.clone(),
                    samples: samples(pace),
                    kind: EntryKind::Dense(encoding),
                });
            }
            exchanges.push(self.push_exchange(server, heads, body));
        }
        let bytes = gradients.iter().map(|(_, values)| values.len() * 4).sum();
        self.run_push(exchanges, bytes)
    }

    pub(super) fn push_exchange<'a>(
        &self,
        server: u32,
        entries: Vec<Entry>,
        body: Vec<&'a [u8]>,
    ) -> Option<Exchange<'a>> {
        let is_empty = entries.is_empty();
        let request = Request::Push {
            epoch: self.epoch,
            step: self.step,
            part: self.parts[server as usize],
            entries,
        };
        (!is_empty).then(|| exchange(request, body))
    }

    pub(super) fn run_push(
        &mut self,
        exchanges: Vec<Option<Exchange<'_>>>,
        bytes: usize,
    ) -> Result<(), ClientError> {
        let sent: Vec<bool> = exchanges.iter().map(Option::is_some).collect();
        let pushed = self.run(exchanges, bytes);
        if let Err(ClientError::Refused(refused)) = &pushed
            && refused.code == Code::Conflict
        {
            // Trainers that wait at a server without this tensor learn it too.
            let (epoch, step, reason) = (self.epoch, self.step, refused.message.clone());
            let request = |_| Request::Reject {
                epoch,
                step,
                reason: reason.clone(),
            };
            self.each(request)?;
        }
        pushed?;
        for (part, sent) in self.parts.iter_mut().zip(sent) {
            *part += u32::from(sent);
        }
        Ok(())
    }
}

/// Checks what a push says about its update.
pub(super) fn check_terms(pace: Pace, optimizer: Option<&Optimizer>) -> Result<(), OutOfRange> {
    if let Some(rate) = pace.rate {
        ranged("lr", f64::from(rate), Range::NotNegative)?;
    }
    optimizer.map_or(Ok(()), Optimizer::check)
}

/// The number of samples, capped at `u32::MAX`.
pub(super) fn samples(pace: Pace) -> u32 {
    u32::try_from(pace.samples).unwrap_or(u32::MAX)
}
