//! Reads the records of several files one after the other.
//!
//! Loading and taking are two steps: `load` may wait for the disk and unpack a chunk, so it is called with the
//! interpreter's lock released; `take` only looks at what is in memory.

use std::sync::Arc;

use paddlecloud_recordio::{Batch, LostRange, RangeReader, ReadError, RecordFile};

use crate::damage::Losses;
use crate::files::Files;

/// The position of a reader, from which another process can resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    pub file: usize,
    /// records of that file already returned
    pub given: u64,
    /// whether damage was skipped before: then `given` is a count, not the next record's number in the file
    pub after_damage: bool,
}

pub struct InOrder {
    files: Arc<Files>,
    file: usize,
    reader: Option<RangeReader>,
    given: u64,
    /// the record that was read when the chunk was loaded
    first: Batch,
    has_first: bool,
    /// number of the first record that is not in memory
    loaded_to: u64,
    /// damage in the files before this one
    losses: Losses,
}

impl InOrder {
    pub fn new(files: Arc<Files>) -> Self {
        Self {
            files,
            file: 0,
            reader: None,
            given: 0,
            first: Batch::new(),
            has_first: false,
            loaded_to: 0,
            losses: Losses::default(),
        }
    }

    /// Resumes at the position of another reader of the same files.
    pub fn seek(&mut self, to: Position) -> Result<(), ReadError> {
        *self = Self::new(Arc::clone(&self.files));
        self.file = to.file;
        if to.file >= self.files.len() || to.given == 0 {
            return Ok(());
        }
        let file = self.files.open(to.file)?;
        let mut reader = match to.after_damage {
            true => file.records(),
            false => from_record(&file, to.given)?,
        };
        if to.after_damage {
            pass_over(&mut reader, to.given)?;
        }
        self.loaded_to = reader.position();
        self.given = to.given;
        self.reader = Some(reader);
        Ok(())
    }

    pub fn position(&self) -> Position {
        let after_damage = !self.current_losses().is_empty();
        Position {
            file: self.file,
            given: self.given,
            after_damage,
        }
    }

    /// Whether the next record is in memory.
    pub fn is_loaded(&self) -> bool {
        self.has_first
            || self
                .reader
                .as_ref()
                .is_some_and(|r| r.position() < self.loaded_to)
    }

    /// Loads the next record into memory; false at the end. Called again after an error, it fails again.
    pub fn load(&mut self) -> Result<bool, ReadError> {
        while !self.is_loaded() {
            self.open()?;
            let Some(reader) = &mut self.reader else {
                return Ok(false);
            };
            self.first.clear();
            if reader.read_batch(1, &mut self.first)? == 1 {
                self.check_losses()?;
                self.has_first = true;
                self.note_loaded();
            } else {
                self.check_losses()?;
                self.end_file();
            }
        }
        Ok(true)
    }

    /// The next record, which must be loaded.
    pub fn take(&mut self) -> Result<&[u8], ReadError> {
        self.given += 1;
        if std::mem::take(&mut self.has_first) {
            return Ok(self.first.get(0));
        }
        let reader = self.reader.as_mut().expect("a loaded record has its reader");
        let record = reader.next_record()?;
        Ok(record.expect("a loaded record is there"))
    }

    /// Fills `batch` up to `max` records from the next chunk; false if there is nothing to add. An error is returned only if
    /// `batch` is empty.
    pub fn read_chunk(&mut self, max: usize, batch: &mut Batch) -> Result<bool, ReadError> {
        match self.load() {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(_) if !batch.is_empty() => return Ok(false),
            Err(error) => return Err(error),
        }
        self.read_loaded(max, batch)?;
        Ok(true)
    }

    fn read_loaded(&mut self, max: usize, batch: &mut Batch) -> Result<(), ReadError> {
        if self.has_first {
            let first = self.take()?;
            batch.push(first);
        }
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let loaded = (self.loaded_to - reader.position()) as usize;
        let count = loaded.min(max - batch.len());
        self.given += reader.read_batch(count, batch)? as u64;
        Ok(())
    }

    /// Everything skipped so far, in order.
    pub fn losses(&self) -> (&Losses, &std::path::Path, &[LostRange]) {
        let file = self.file.min(self.files.len() - 1);
        (&self.losses, self.files.path(file), self.current_losses())
    }

    fn current_losses(&self) -> &[LostRange] {
        self.reader
            .as_ref()
            .map_or(&[], |reader| reader.damage().ranges())
    }

    fn check_losses(&self) -> Result<(), ReadError> {
        let file = self.files.path(self.file);
        self.losses
            .check(file, self.current_losses(), self.files.policy())
    }

    /// Opens the file that is next; there is no reader only after the last.
    fn open(&mut self) -> Result<(), ReadError> {
        if self.reader.is_none() && self.file < self.files.len() {
            self.reader = Some(self.files.open(self.file)?.records());
            self.loaded_to = 0;
        }
        Ok(())
    }

    fn note_loaded(&mut self) {
        let reader = self.reader.as_ref().expect("a record was just read");
        let index = reader.index();
        let chunk = index
            .chunk_of(reader.position() - 1)
            .expect("the record has its chunk");
        self.loaded_to = index.chunks()[chunk].records().end;
    }

    fn end_file(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.losses
                .add(self.files.path(self.file), reader.damage().ranges());
        }
        self.file += 1;
        self.given = 0;
    }
}

fn from_record(file: &RecordFile, record: u64) -> Result<RangeReader, ReadError> {
    file.range(record..file.len().max(record))
}

/// Skips the `count` records that were returned before.
fn pass_over(reader: &mut RangeReader, count: u64) -> Result<(), ReadError> {
    for _ in 0..count {
        if reader.next_record()?.is_none() {
            break;
        }
    }
    Ok(())
}
