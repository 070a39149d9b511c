//! Opens a file for sequential reading, decompresses gzip, and reports the progress.

use std::cell::Cell;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use flate2::read::MultiGzDecoder;
use paddlecloud_recordio::MAGIC;

use crate::error::DataError;
use crate::origin::Origin;

const BUFFER_LEN: usize = 256 << 10;
const HEAD_LEN: u64 = 8 << 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How many bytes of the file on disk have been read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position(Rc<Cell<u64>>);

impl Position {
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// An open file, decompressed.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn BufRead>,
    pub(crate) position: Position,
    pub(crate) is_gzip: bool,
}

impl Input {
    pub(crate) fn open(origin: &Origin) -> Result<Self, DataError> {
        let path = origin.name();
        let position = Position::default();
        let counted = Counted {
            inner: origin.reader()?,
            position: position.clone(),
        };
        let mut plain = BufReader::with_capacity(BUFFER_LEN, counted);
        let is_gzip = plain
            .fill_buf()
            .map_err(|e| DataError::read(path, e))?
            .starts_with(&GZIP);
        let reader: Box<dyn BufRead> = match is_gzip {
            true => Box::new(BufReader::with_capacity(BUFFER_LEN, MultiGzDecoder::new(plain))),
            false => Box::new(plain),
        };
        Ok(Self {
            reader,
            position,
            is_gzip,
        })
    }
}

/// The first bytes of a file, decompressed.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_gzip: bool,
}

impl Head {
    pub(crate) fn is_recordio(&self) -> bool {
        self.bytes.starts_with(&MAGIC.to_le_bytes())
    }

    /// Text has no zero byte. UTF-16 has, and is not text here: its lines cannot be found by bytes.
    pub(crate) fn is_text(&self) -> bool {
        !self.bytes.contains(&0)
    }
}

pub(crate) fn head(origin: &Origin) -> Result<Head, DataError> {
    let input = Input::open(origin)?;
    let mut bytes = Vec::new();
    input
        .reader
        .take(HEAD_LEN)
        .read_to_end(&mut bytes)
        .map_err(|e| DataError::read(origin.name(), e))?;
    Ok(Head {
        bytes,
        is_gzip: input.is_gzip,
    })
}

/// Files are read more than once, so a pipe is refused.
pub(crate) fn check_regular(path: &Path) -> Result<(), DataError> {
    let about = fs::metadata(path).map_err(|e| DataError::read(path, e))?;
    if about.is_dir() {
        return Err(DataError::file(path, "is a folder"));
    }
    match about.is_file() {
        true => Ok(()),
        false => Err(DataError::file(path, "is not a regular file")),
    }
}

/// Shows whether a file is still the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> Result<Self, DataError> {
        let about = fs::metadata(path).map_err(|e| DataError::read(path, e))?;
        Ok(Self {
            len: about.len(),
            modified: about.modified().ok(),
        })
    }

    /// For a remote file only the length counts: its source must return the bytes of one version.
    pub(crate) fn of_origin(origin: &Origin) -> Result<Self, DataError> {
        if !origin.is_elsewhere() {
            return Self::of(origin.name());
        }
        let len = origin.bytes()?.len();
        Ok(Self {
            len: len.map_err(|e| DataError::read(origin.name(), e))?,
            modified: None,
        })
    }

    pub(crate) fn check_origin(&self, origin: &Origin) -> Result<(), DataError> {
        match origin.is_elsewhere() {
            true => Ok(()),
            false => self.check(origin.name()),
        }
    }

    pub(crate) fn check(&self, path: &Path) -> Result<(), DataError> {
        match *self == Self::of(path)? {
            true => Ok(()),
            false => Err(DataError::Changed {
                file: path.to_owned(),
            }),
        }
    }
}

struct Counted {
    inner: Box<dyn Read>,
    position: Position,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buf)?;
        self.position.0.set(self.position.get() + got as u64);
        Ok(got)
    }
}
