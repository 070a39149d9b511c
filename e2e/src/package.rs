//! A package to submit: a folder with a few files.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that a test fills.
#[derive(Debug)]
pub struct Package {
    folder: PathBuf,
}

impl Package {
    pub(crate) fn new(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).expect("a test's own folder can be made");
        Self { folder }
    }

    /// Adds a file, with the folders above it.
    pub fn file(self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folders can be made");
        fs::write(&path, contents).expect("a file can be written");
        self
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// As an argument.
    pub fn arg(&self) -> &str {
        self.folder.to_str().expect("temporary folders have plain names")
    }
}
