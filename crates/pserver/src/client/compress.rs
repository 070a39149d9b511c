//! Compresses gradients: half precision, or only the largest elements, with the rest kept for the next push.

use crate::codec;
use crate::message::{Encoding, TensorId};
use crate::placement::{BLOCK, Layout};

use super::{Client, ClientError};

/// How gradients are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Gradients {
    #[default]
    F32,
    Bf16,
    F16,
    /// Sends this share of the elements of a dense gradient: the largest ones. The others are added to the next
    /// gradient. Rows of tables are sent whole.
    TopK(f32),
}

/// A server's portion of a gradient.
#[derive(Debug)]
pub(super) struct Portion {
    pub encoding: Encoding,
    pub bytes: Vec<u8>,
}

type Dense<'a> = ((TensorId, Layout), &'a str, &'a [f32]);

impl Client {
    /// The portions of each gradient, by server; empty if gradients are sent uncompressed.
    pub(super) fn compress(&mut self, entries: &[Dense<'_>]) -> Result<Vec<Vec<Portion>>, ClientError> {
        let servers = self.servers();
        let halves = |encoding| {
            let of_tensor = |((_, layout), _, values): &Dense<'_>| {
                let of_server = |server| halved(values, layout, server, encoding);
                (0..servers).map(of_server).collect()
            };
            entries.iter().map(of_tensor).collect()
        };
        match self.config.gradients {
            Gradients::F32 => Ok(Vec::new()),
            Gradients::Bf16 => Ok(halves(Encoding::Bf16)),
            Gradients::F16 => Ok(halves(Encoding::F16)),
            Gradients::TopK(share) => Ok(entries.iter().map(|entry| self.largest(entry, share)).collect()),
        }
    }

    /// After a rollback: what was not sent belongs to steps that no longer exist.
    pub(super) fn drop_remainders(&mut self) {
        if !self.unsent.is_empty() {
            self.unsent.clear();
            self.notify_of_remainders("training was rolled back");
        }
    }

    /// In a restarted trainer, or one of a run that continues another.
    pub(super) fn report_lost_remainders(&self) {
        if matches!(self.config.gradients, Gradients::TopK(_)) && self.step > 0 {
            self.notify_of_remainders(&format!("this trainer begins at step {}", self.step));
        }
    }

    fn notify_of_remainders(&self, why: &str) {
        self.config.listener.notice(&format!(
            "{why}: what `topk` had not sent of the gradients before is lost, so the model will differ from that of an \
             undisturbed run"
        ));
    }

    fn largest(&mut self, ((_, layout), name, values): &Dense<'_>, share: f32) -> Vec<Portion> {
        let unsent = self.unsent.entry((*name).to_owned()).or_default();
        unsent.resize(values.len(), 0.0);
        unsent.iter_mut().zip(*values).for_each(|(sum, g)| *sum += *g);
        let least = threshold(unsent, share);
        let mut portions: Vec<Vec<u8>> = vec![Vec::new(); layout.servers as usize];
        for server in 0..layout.servers {
            for (index, range) in layout.ranges(server).enumerate() {
                for at in range.clone() {
                    let value = unsent[at as usize];
                    // Non-finite values are sent, so that the server refuses the tensor by name.
                    if value != 0.0 && (value.abs() >= least || !value.is_finite()) {
                        let place = index as u64 * BLOCK + (at - range.start);
                        portions[server as usize].extend((place as u32).to_le_bytes());
                        portions[server as usize].extend(value.to_le_bytes());
                        unsent[at as usize] = 0.0;
                    }
                }
            }
        }
        let portion = |bytes: Vec<u8>| Portion {
            encoding: Encoding::Sparse {
                count: (bytes.len() / 8) as u32,
            },
            bytes,
        };
        portions.into_iter().map(portion).collect()
    }
}

fn halved(values: &[f32], layout: &Layout, server: u32, encoding: Encoding) -> Portion {
    let mut bytes = Vec::with_capacity(2 * layout.local_elements(server) as usize);
    for range in layout.ranges(server) {
        codec::encode_halves(
            &values[range.start as usize..range.end as usize],
            encoding,
            &mut bytes,
        );
    }
    Portion { encoding, bytes }
}

/// The magnitude that `share` of the values reach.
fn threshold(values: &[f32], share: f32) -> f32 {
    let count = ((values.len() as f32 * share).ceil() as usize).clamp(1, values.len().max(1));
    let mut sizes: Vec<f32> = values.iter().map(|value| value.abs()).collect();
    match sizes.len() {
        0 => 0.0,
        length => *sizes.select_nth_unstable_by(length - count, f32::total_cmp).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_reached_by_the_share_asked_for() {
        let values = [0.5, -4.0, 1.0, 3.0];
        assert_eq!(threshold(&values, 0.5), 3.0);
        assert_eq!(threshold(&values, 0.01), 4.0);
        assert_eq!(threshold(&values, 1.0), 0.5);
        assert_eq!(threshold(&[], 0.5), 0.0);
    }
}
