//! The bytes of a data set: in a local file, or anywhere that can be read by offset.
//!
//! The source of remote bytes fetches them; this crate requests no more of them than it needs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_recordio::{ReadAt, index_path};

use crate::error::DataError;
use crate::input::check_regular;

/// A file to read, local or remote.
#[derive(Clone)]
pub struct Origin {
    name: PathBuf,
    elsewhere: Option<Elsewhere>,
}

#[derive(Clone)]
struct Elsewhere {
    bytes: Arc<dyn ReadAt>,
    index: Option<Arc<dyn ReadAt>>,
}

impl Origin {
    /// A remote file. `name` is its name in errors; `index` is its RecordIO index, if there is one.
    pub fn elsewhere(
        name: impl Into<PathBuf>,
        bytes: Arc<dyn ReadAt>,
        index: Option<Arc<dyn ReadAt>>,
    ) -> Self {
        Self {
            name: name.into(),
            elsewhere: Some(Elsewhere { bytes, index }),
        }
    }

    pub fn name(&self) -> &Path {
        &self.name
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// The bytes, readable at any offset.
    pub(crate) fn bytes(&self) -> Result<Arc<dyn ReadAt>, DataError> {
        if let Some(elsewhere) = &self.elsewhere {
            return Ok(Arc::clone(&elsewhere.bytes));
        }
        check_regular(&self.name)?;
        let file = File::open(&self.name).map_err(|e| DataError::read(&self.name, e))?;
        Ok(Arc::new(file))
    }

    /// The bytes, sequentially.
    pub(crate) fn reader(&self) -> Result<Box<dyn Read>, DataError> {
        let bytes = self.bytes()?;
        let len = bytes.len().map_err(|e| DataError::read(&self.name, e))?;
        Ok(Box::new(FrontToBack { bytes, at: 0, len }))
    }

    pub(crate) fn has_index(&self) -> bool {
        match &self.elsewhere {
            Some(elsewhere) => elsewhere.index.is_some(),
            None => index_path(&self.name).exists(),
        }
    }

    /// The stored index beside it.
    pub(crate) fn index(&self) -> Result<Option<Vec<u8>>, DataError> {
        let path = index_path(&self.name);
        let read = match &self.elsewhere {
            Some(elsewhere) => elsewhere.index.as_ref().map(read_all).transpose(),
            None => match fs::read(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                other => other.map(Some),
            },
        };
        read.map_err(|e| DataError::read(&path, e))
    }
}

impl<P: Into<PathBuf>> From<P> for Origin {
    fn from(path: P) -> Self {
        Self {
            name: path.into(),
            elsewhere: None,
        }
    }
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Origin").field(&self.name).finish()
    }
}

fn read_all(bytes: &Arc<dyn ReadAt>) -> io::Result<Vec<u8>> {
    let len = usize::try_from(bytes.len()?).map_err(io::Error::other)?;
    let mut all = vec![0; len];
    bytes.read_exact_at(&mut all, 0)?;
    Ok(all)
}

/// Reads by offset as a stream. A file that shrinks meanwhile is an error, not an end.
pub(crate) struct FrontToBack {
    pub(crate) bytes: Arc<dyn ReadAt>,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl Read for FrontToBack {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(self.at);
        let want = left.min(buf.len() as u64) as usize;
        self.bytes.read_exact_at(&mut buf[..want], self.at)?;
        self.at += want as u64;
        Ok(want)
    }
}
