//! Reads the records of a file from front to back, in any format.

mod csv;
mod guarded;
mod jsonl;
mod lines;
mod parquet;
mod recordio;
mod tar;

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_recordio::{DamageReport, Policy, ReadAt, RecordFile};

use crate::error::DataError;
use crate::format::Format;
use crate::input::{self, Input, Stamp};
use crate::origin::Origin;

/// How a file is read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// Detected if omitted.
    pub format: Option<Format>,
    /// Only this part of every record: a column, a field, the file with this extension.
    pub field: Option<String>,
    /// CSV only: the first line is a row like the others, and rows become arrays.
    pub first_line_is_data: bool,
    /// RecordIO only: what to do about damage.
    pub policy: Policy,
}

/// A record while it is visited.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// From 0 on.
    pub number: u64,
    pub bytes: &'a [u8],
    /// How much of the file on disk has been read for it.
    pub position: u64,
}

/// Called for every record; it may stop the reading.
pub type Visit<'a> = dyn FnMut(Seen<'_>) -> Result<ControlFlow<()>, DataError> + 'a;

/// The purpose of reading a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Every record is needed: data that is not a record is an error.
    Records,
    /// Only whether the file is intact: data that the format allows but no record can represent is skipped.
    Review,
}

/// A file whose format is known.
#[derive(Debug)]
pub struct Dataset {
    path: PathBuf,
    origin: Origin,
    format: Format,
    options: ReadOptions,
    stamp: Stamp,
    is_packed: bool,
}

impl Dataset {
    pub fn open(origin: impl Into<Origin>, options: ReadOptions) -> Result<Self, DataError> {
        let origin = origin.into();
        let path = origin.name().to_owned();
        let format = match options.format {
            Some(format) => format,
            None => {
                Format::of_file(&origin)?.ok_or_else(|| DataError::UnknownFormat { file: path.clone() })?
            }
        };
        if options.field.is_some() && !format.has_fields() {
            return Err(DataError::file(
                &path,
                format!("is read as {format}, whose records have no fields"),
            ));
        }
        let stamp = Stamp::of_origin(&origin)?;
        let is_packed = input::head(&origin)?.is_gzip;
        Ok(Self {
            path,
            origin,
            format,
            options,
            stamp,
            is_packed,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is inside gzip.
    pub fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// The bytes of the file on the disk.
    pub fn len(&self) -> u64 {
        self.stamp.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes every record to `visit`; returns the damage that was skipped.
    pub fn each(&self, visit: &mut Visit<'_>) -> Result<DamageReport, DataError> {
        self.each_in(0..u64::MAX, visit)
    }

    /// Passes the records with these numbers; there may be fewer.
    pub fn each_in(&self, records: Range<u64>, visit: &mut Visit<'_>) -> Result<DamageReport, DataError> {
        if self.is_record_file() && !self.is_best_read_in_order(&records) {
            return recordio::each_in_file(self, records, visit);
        }
        let mut ended_early = false;
        let mut within = |seen: Seen<'_>| {
            let flow = match seen.number {
                before if before < records.start => ControlFlow::Continue(()),
                after if after >= records.end => ControlFlow::Break(()),
                _ => visit(seen)?,
            };
            ended_early |= flow.is_break();
            Ok(flow)
        };
        let damage = self.each_in_stream(Care::Records, &mut within)?;
        if !ended_early {
            self.stamp.check_origin(&self.origin)?;
        }
        Ok(damage)
    }

    /// Reads everything to check whether the file is intact. Parts that the format allows but that are not records,
    /// such as a link in an archive, are read too and not passed on.
    pub fn review(&self, visit: &mut Visit<'_>) -> Result<DamageReport, DataError> {
        if self.is_record_file() {
            return self.each(visit);
        }
        let damage = self.each_in_stream(Care::Review, visit)?;
        self.stamp.check_origin(&self.origin)?;
        Ok(damage)
    }

    /// Opens a RecordIO file that is not inside gzip, for information that only such a file has.
    pub fn record_file(&self, policy: Policy) -> Result<RecordFile<Arc<dyn ReadAt>>, DataError> {
        let options = paddlecloud_recordio::ReadOptions::new().policy(policy);
        let (bytes, index) = (self.origin.bytes()?, self.origin.index()?);
        Ok(options.open_indexed(bytes, &self.path, index.as_deref())?)
    }

    /// Whether it is RecordIO with random access, not only sequential.
    pub fn is_record_file(&self) -> bool {
        self.format == Format::RecordIo && !self.is_packed
    }

    /// For a remote file, reading all headers first costs a round trip each. Sequential reading needs none, and loses
    /// nothing: damage is an error either way, and no index knows better where the end is.
    fn is_best_read_in_order(&self, records: &Range<u64>) -> bool {
        let is_strict = self.options.policy == Policy::Strict;
        self.origin.is_elsewhere() && records.start == 0 && is_strict && !self.origin.has_index()
    }

    fn each_in_stream(&self, care: Care, visit: &mut Visit<'_>) -> Result<DamageReport, DataError> {
        match self.format {
            Format::RecordIo => return recordio::each_in_stream(self, self.input()?, visit),
            Format::Lines => lines::each(self, self.input()?, visit),
            Format::Csv => csv::each(self, self.input()?, visit),
            Format::Jsonl => jsonl::each(self, self.input()?, visit),
            Format::Tar => tar::each(self, self.input()?, care, visit),
            Format::Parquet => parquet::each(self, care, visit),
        }?;
        Ok(DamageReport::default())
    }

    fn input(&self) -> Result<Input, DataError> {
        Input::open(&self.origin)
    }

    fn field(&self) -> Option<&str> {
        self.options.field.as_deref()
    }
}
