//! The formats of data sets, and how to detect them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::error::DataError;
use crate::input::{self, Head};
use crate::origin::Origin;

/// A format, and what a record is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Records unchanged.
    RecordIo,
    /// A record is a line without its end.
    Lines,
    /// A record is a row as a JSON object, column names from the first line (or a JSON array, without such a line).
    Csv,
    /// A record is a line with one JSON value.
    Jsonl,
    /// WebDataset: a record is a sample, the files that share a name up to the first dot, as a pickled dictionary of
    /// `__key__` and the files' extensions, as Python's `webdataset` yields it.
    Tar,
    /// A record is a row as a JSON object.
    Parquet,
}

impl Format {
    pub const ALL: [Self; 6] = [
        Self::RecordIo,
        Self::Lines,
        Self::Csv,
        Self::Jsonl,
        Self::Tar,
        Self::Parquet,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::RecordIo => "recordio",
            Self::Lines => "lines",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Tar => "tar",
            Self::Parquet => "parquet",
        }
    }

    /// Whether a record has named parts, so that one of them can be selected.
    pub const fn has_fields(self) -> bool {
        matches!(self, Self::Csv | Self::Jsonl | Self::Tar | Self::Parquet)
    }

    /// The format of a file name; a trailing `.gz` is ignored.
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        if name.ends_with(".tgz") {
            return Some(Self::Tar);
        }
        match name.rsplit_once('.')?.1 {
            "rio" | "recordio" => Some(Self::RecordIo),
            "txt" | "list" => Some(Self::Lines),
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "tar" => Some(Self::Tar),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }

    /// The format of a file: its first bytes decide if they can, otherwise its name. `None` if neither does.
    pub fn of_file(origin: &Origin) -> Result<Option<Self>, DataError> {
        let head = input::head(origin)?;
        Ok(Self::of_head(&head).or_else(|| Self::of_name(origin.name())))
    }

    fn of_head(head: &Head) -> Option<Self> {
        if head.is_recordio() {
            return Some(Self::RecordIo);
        }
        if head.bytes.starts_with(b"PAR1") {
            return Some(Self::Parquet);
        }
        (head.bytes.get(257..262) == Some(b"ustar")).then_some(Self::Tar)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}` (use recordio, lines, csv, jsonl, tar or parquet)")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_the_format_compressed_or_not() {
        let of = |name: &str| Format::of_name(Path::new(name));
        assert_eq!(of("a/train.csv.gz"), Some(Format::Csv));
        assert_eq!(of("shard-000.tar"), Some(Format::Tar));
        assert_eq!(of("x.TGZ"), Some(Format::Tar));
        assert_eq!(of("train.rio"), Some(Format::RecordIo));
        assert_eq!(of("train-00000-of-00003"), None);
        assert_eq!(of("csv"), None);
    }

    #[test]
    fn contents_beat_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("liar.csv");
        std::fs::write(&path, 0x0102_0304_u32.to_le_bytes()).unwrap();
        assert_eq!(Format::of_file(&path.into()).unwrap(), Some(Format::RecordIo));
    }

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("xml".parse::<Format>().is_err());
    }
}
