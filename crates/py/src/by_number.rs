//! Reads records of several files by number, as if the files were one.

use std::ops::Range;
use std::sync::Arc;

use paddlecloud_recordio::{Batch, RandomReader, ReadError};

use crate::damage::Losses;
use crate::files::Files;

/// How many files are kept open. Beyond it the one not used for longest is closed.
const MAX_OPEN: usize = 32;

pub struct ByNumber {
    files: Arc<Files>,
    cache_bytes: usize,
    /// number of each file's first record, then the number of all records
    starts: Option<Vec<u64>>,
    /// the last used comes last
    open: Vec<(usize, RandomReader)>,
    losses: Losses,
}

impl ByNumber {
    /// `cache_bytes` bounds what is remembered of chunks, over all files.
    pub fn new(files: Arc<Files>, cache_bytes: usize) -> Self {
        Self {
            cache_bytes: cache_bytes / files.len().clamp(1, MAX_OPEN),
            files,
            starts: None,
            open: Vec::new(),
            losses: Losses::default(),
        }
    }

    pub fn close(&mut self) {
        self.open.clear();
    }

    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// How many records there are; the first call looks into every file.
    pub fn len(&mut self) -> Result<u64, ReadError> {
        Ok(*self.starts()?.last().expect("the total is always there"))
    }

    /// Number of the first record of every piece, then the number of all records.
    ///
    /// A piece is a chunk, or as many as it takes to have `min_bytes` stored; it lies in one file.
    pub fn piece_starts(&mut self, min_bytes: u64) -> Result<Vec<i64>, ReadError> {
        let mut all = Vec::new();
        for file in 0..self.files.len() {
            let before = self.starts()?[file];
            let chunks = self.file(file)?.file().index().chunks();
            let mut bytes = min_bytes;
            for chunk in chunks.iter().filter(|chunk| chunk.header.records > 0) {
                if bytes >= min_bytes {
                    all.push((before + chunk.first_record) as i64);
                    bytes = 0;
                }
                bytes += chunk.header.chunk_len();
            }
        }
        all.push(self.len()? as i64);
        Ok(all)
    }

    /// The records with these numbers in a row: all of them, or an error.
    pub fn get_range(&mut self, range: Range<u64>) -> Result<Batch, ReadError> {
        let (batch, losses) = self.walk(range)?;
        match losses.first() {
            None => Ok(batch),
            Some((file, lost)) => Err(ReadError::Damaged {
                file: self.files.path(*file).to_owned(),
                offset: lost.bytes.start,
                fault: lost.fault.clone(),
            }),
        }
    }

    /// The records with these numbers in a row, without those that the policy lets go.
    pub fn read_range(&mut self, range: Range<u64>) -> Result<Batch, ReadError> {
        let (batch, losses) = self.walk(range)?;
        for (file, lost) in losses {
            let path = self.files.path(file);
            self.losses
                .check(path, std::slice::from_ref(&lost), self.files.policy())?;
            self.losses.add(path, &[lost]);
        }
        Ok(batch)
    }

    fn walk(&mut self, range: Range<u64>) -> Result<(Batch, Vec<LostIn>), ReadError> {
        let (mut batch, mut losses) = (Batch::new(), Vec::new());
        let mut next = range.start;
        while next < range.end {
            let file = self.file_of(next)?;
            let starts = self.starts()?;
            let (before, end) = (starts[file], starts[file + 1].min(range.end));
            let open = self.file(file)?.file().clone();
            let mut reader = open.range(next - before..end - before)?;
            while reader.read_batch((end - next) as usize, &mut batch)? > 0 {}
            losses.extend(reader.damage().ranges().iter().map(|lost| (file, lost.clone())));
            next = end;
        }
        Ok((batch, losses))
    }

    /// Appends the records with these numbers, which must be sorted and exist.
    pub fn gather(&mut self, mut numbers: &[u64], records: &mut Batch) -> Result<(), ReadError> {
        while let Some(first) = numbers.first() {
            let file = self.file_of(*first)?;
            let starts = self.starts()?;
            let (before, end) = (starts[file], starts[file + 1]);
            let (here, rest) = numbers.split_at(numbers.partition_point(|number| *number < end));
            let local: Vec<u64> = here.iter().map(|number| number - before).collect();
            self.file(file)?.get_many(&local, records)?;
            numbers = rest;
        }
        Ok(())
    }

    /// Which file has this record.
    fn file_of(&mut self, number: u64) -> Result<usize, ReadError> {
        Ok(self.starts()?.partition_point(|start| *start <= number) - 1)
    }

    fn starts(&mut self) -> Result<&[u64], ReadError> {
        if self.starts.is_none() {
            let mut starts = vec![0];
            for file in 0..self.files.len() {
                let len = self.file(file)?.file().len();
                starts.push(starts[file] + len);
            }
            self.starts = Some(starts);
        }
        Ok(self.starts.as_deref().expect("just counted"))
    }

    fn file(&mut self, file: usize) -> Result<&mut RandomReader, ReadError> {
        let reader = match self.open.iter().position(|(open, _)| *open == file) {
            Some(place) => self.open.remove(place),
            None => {
                let reader = self.files.open(file)?.random(self.cache_bytes);
                if self.open.len() == MAX_OPEN {
                    self.open.remove(0);
                }
                (file, reader)
            }
        };
        self.open.push(reader);
        let (_, reader) = self.open.last_mut().expect("just put there");
        Ok(reader)
    }
}

/// A loss and the file it is in.
type LostIn = (usize, paddlecloud_recordio::LostRange);
