//! Requests about the rows of sparse tables.

use std::io::{Read, Write};

use crate::wire::{Writer, bytes_of, bytes_of_ids, bytes_of_ids_mut, bytes_of_mut};

use super::{Connection, Fault, waits_for};

/// Most rows of one reply to `Scan`.
const MAX_SCAN: u32 = 1 << 16;

impl<S: Read + Write> Connection<S> {
    pub(super) fn assign_rows(&mut self, tensor: u32, count: u32) -> Result<(), Fault> {
        let table = self.server.table(tensor)?;
        let elements = count as usize * table.row();
        self.expect_body(8 * u64::from(count) + 4 * elements as u64)?;
        let _memory = self.server.budget.reserve(self.unread, &table.spec.name)?;
        let (mut ids, mut rows) = (vec![0; count as usize], vec![0.0; elements]);
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
        let held = 8 * u64::from(count) + 4 * elements as u64;
        let _memory = self.server.budget.reserve(held, &table.spec.name)?;
        let mut ids = vec![0; count as usize];
        self.read_body(bytes_of_ids_mut(&mut ids))?;
        if train {
            let sender = self.sender(epoch);
            self.wait(
                |state| Ok(state.steps.pull(sender, step)?),
                |state| {
                    waits_for(
                        state.steps.awaited(step.saturating_sub(1)),
                        step.saturating_sub(1),
                    )
                },
            )?;
            table.set_clock(step);
        }
        let mut rows = vec![0.0; elements];
        table.lookup(&ids, train, &mut rows)?;
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
