//! The files of one reader and how they are opened.

use std::path::{Path, PathBuf};

use paddlecloud_recordio::{Policy, ReadError, ReadOptions, RecordFile};

/// Names in reading order. Nothing is open here.
pub struct Files {
    paths: Vec<PathBuf>,
    policy: Policy,
}

impl Files {
    pub fn new(paths: Vec<PathBuf>, policy: Policy) -> Self {
        Self { paths, policy }
    }

    pub fn len(&self) -> usize {
        self.paths.len()
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub fn path(&self, file: usize) -> &Path {
        &self.paths[file]
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn open(&self, file: usize) -> Result<RecordFile, ReadError> {
        ReadOptions::new().policy(self.policy).open(&self.paths[file])
    }
}
