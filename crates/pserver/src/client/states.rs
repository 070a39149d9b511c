//! The optimizer state of dense tensors: read and replaced as a whole.

use crate::message::Request;
use crate::optimizer::Progress;
use crate::wire::Reader;

use super::{Client, ClientError, Exchange, KnownKind, Sink, exchange, pieces, scatter};

impl Client {
    /// Reads the optimizer state of a dense tensor at this trainer's step: one slot after the other, each as long as the
    /// tensor.
    pub fn optimizer_state(&mut self, name: &str, state: &mut [f32]) -> Result<Progress, ClientError> {
        let (tensor, layout) = self.state_layout(name, state.len())?;
        let (epoch, step) = (self.epoch, self.step);
        let mut scattered: Vec<Vec<&mut [u8]>> = (0..self.servers()).map(|_| Vec::new()).collect();
        let bytes = state.len() * 4;
        for slot in state.chunks_mut(layout.elements.max(1) as usize) {
            scatter(slot, &layout, &mut scattered);
        }
        // Only servers with a portion know the progress.
        let holders: Vec<bool> = (0..self.servers())
            .map(|server| layout.local_elements(server) > 0)
            .collect();
        let exchanges = scattered.into_iter().zip(holders).map(|(slices, holds)| {
            holds.then_some(Exchange {
                request: Request::State { epoch, step, tensor },
                body: Vec::new(),
                sink: Sink::Into(slices),
            })
        });
        let exchanges = exchanges.collect();
        let heads = self.run(exchanges, bytes)?;
        match heads.first() {
            Some(head) => Ok(Progress::decode(&mut Reader::new(head))?),
            None => Ok(Progress::default()),
        }
    }

    /// Replaces what [`Client::optimizer_state`] reads. Without `powers`, those of Adam follow from the updates.
    pub fn set_optimizer_state(
        &mut self,
        name: &str,
        (updates, samples): (u64, u64),
        powers: Option<(f32, f32)>,
        state: &[f32],
    ) -> Result<(), ClientError> {
        let (tensor, layout) = self.state_layout(name, state.len())?;
        let KnownKind::Dense(_, spec) = &self.tensor(name)?.kind else {
            unreachable!("`state_layout` checked it");
        };
        let mut progress = spec.optimizer.progress_after(updates, samples);
        if let Some((beta1_power, beta2_power)) = powers {
            progress = Progress {
                beta1_power,
                beta2_power,
                ..progress
            };
        }
        let exchanges = (0..self.servers()).map(|server| {
            let slots = state.chunks(layout.elements.max(1) as usize);
            let body = slots.flat_map(|slot| pieces(slot, &layout, server)).collect();
            Some(exchange(Request::SetState { tensor, progress }, body))
        });
        let exchanges = exchanges.collect();
        self.run(exchanges, state.len() * 4)?;
        Ok(())
    }

    fn state_layout(
        &self,
        name: &str,
        floats: usize,
    ) -> Result<(u32, crate::placement::Layout), ClientError> {
        let known = self.tensor(name)?;
        let KnownKind::Dense(layout, spec) = &known.kind else {
            return Err(ClientError::Kind {
                name: name.to_owned(),
                is: "sparse table",
                wanted: "dense tensor",
            });
        };
        let slots = spec.optimizer.clone().of_dense().state_per_element() as u64;
        let (expected, found) = (slots * layout.elements, floats as u64);
        match expected == found {
            true => Ok((known.place.id, *layout)),
            false => Err(ClientError::State {
                name: name.to_owned(),
                expected,
                found,
            }),
        }
    }
}
