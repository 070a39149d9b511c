//! Requests about the rows of sparse tables.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::sparse::Purpose;
use crate::steps::{Mode, Verdict};
use crate::wire::{Writer, bytes_of, bytes_of_ids, bytes_of_ids_mut, bytes_of_mut};

use super::{Connection, Fault, waits_for};

/// Maximum rows in a reply to `Scan`.
const MAX_SCAN: u32 = 1 << 16;

impl<S: Read + Write> Connection<S> {
    pub(super) fn assign_rows(&mut self, tensor: u32, count: u32) -> Result<(), Fault> {
        self.wait_for_own_step(None)?;
        let table = self.server.table(tensor)?;
        let elements = count as usize * table.row();
        self.expect_body(8 * u64::from(count) + 4 * elements as u64)?;
        let _memory = self
            .server
            .budget
            .reserve(8 * u64::from(count), &table.spec.name)?;
        let mut rows = self.server.budget.buffer(elements, &table.spec.name)?;
        let mut ids = vec![0; count as usize];
        self.read_body(bytes_of_ids_mut(&mut ids))?;
        self.read_body(bytes_of_mut(&mut rows))?;
        if !crate::optimizer::all_finite(&rows) {
            return Err(self.not_finite(&table.spec.name).into());
        }
        table.assign(&ids, &rows)?;
        self.done(&mut Writer::new())
    }

    pub(super) fn lookup(
        &mut self,
        epoch: u64,
        step: u64,
        tensor: u32,
        count: u32,
        train: bool,
    ) -> Result<(), Fault> {
        let table = self.server.table(tensor)?;
        self.expect_body(8 * u64::from(count))?;
        let elements = count as usize * table.row();
        let _memory = self
            .server
            .budget
            .reserve(8 * u64::from(count), &table.spec.name)?;
        let mut rows = self.server.budget.buffer(elements, &table.spec.name)?;
        let mut ids = vec![0; count as usize];
        self.read_body(bytes_of_ids_mut(&mut ids))?;
        if !train {
            self.wait_for_own_step(None)?;
            table.lookup(&ids, Purpose::Evaluate, &mut rows)?;
            return self.done_with(&mut Writer::new(), &[bytes_of(&rows)]);
        }
        let sender = self.sender(epoch);
        let mut is_done = false;
        let once_per_step = self.server.state().steps.mode() == Mode::Sync;
        let purpose = Purpose::Train { once_per_step };
        let server = Arc::clone(&self.server);
        self.wait(
            |state| {
                let verdict = server.pull(state, sender, step)?;
                if verdict != Verdict::Wait {
                    // Under the lock, so that a lookup of a step that was rolled back in the meantime has no effect.
                    table.set_clock(step);
                    if table.spec.limits.admit_after > 1 && once_per_step {
                        table.lookup(&ids, purpose, &mut rows)?;
                        is_done = true;
                    }
                }
                Ok(verdict)
            },
            |state| {
                waits_for(
                    state.steps.awaited(step.saturating_sub(1)),
                    step.saturating_sub(1),
                )
            },
        )?;
        if !is_done {
            table.lookup(&ids, purpose, &mut rows)?;
        }
        self.done_with(&mut Writer::new(), &[bytes_of(&rows)])
    }

    pub(super) fn scan(
        &mut self,
        tensor: u32,
        from: u64,
        limit: u32,
        changed_since: u64,
    ) -> Result<(), Fault> {
        self.expect_body(0)?;
        self.wait_for_own_step(None)?;
        let table = self.server.table(tensor)?;
        let limit = limit.clamp(1, MAX_SCAN) as usize;
        let row = table.row();
        let held = (limit * (8 + 4 * row)) as u64;
        let _memory = self.server.budget.reserve(held, &table.spec.name)?;
        let (mut ids, mut rows) = (Vec::new(), Vec::new());
        let since = u32::try_from(changed_since).unwrap_or(u32::MAX);
        let next = table.scan(from, limit, since, |id, _, data| {
            ids.push(id);
            rows.extend_from_slice(&data[..row]);
        });
        let mut head = Writer::new();
        head.u8(u8::from(next.is_some()))
            .u64(next.unwrap_or(0))
            .u32(ids.len() as u32);
        self.done_with(&mut head, &[bytes_of_ids(&ids), bytes_of(&rows)])
    }
}
