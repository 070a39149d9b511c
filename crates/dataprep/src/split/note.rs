//! The manifest of a split, for a split into a folder that is not on this machine.

use std::collections::HashSet;
use std::path::Path;

use super::tree::{Manifest, State};

/// A lock folder while such output is replaced, so that two runs do not mix.
pub const LOCK_FOLDER: &str = ".paddle-data.lock.d";

impl Manifest {
    /// The manifest as stored; or why it is malformed.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text)
            .map_err(|error| format!("the record of the previous split is malformed: {error}"))
    }

    pub fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("names, words and numbers are always JSON");
        text.push(b'\n');
        text
    }

    /// Nodes `0` up to but excluding this have split data.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The manifest while the data of this many nodes is replaced: files of both splits may exist then.
    pub fn exchanging(&self, parts: u32, before: Option<&Self>) -> Self {
        let mut note = self.clone();
        (note.state, note.parts) = (State::Exchanging, parts);
        let new = self.names();
        let old = before.iter().flat_map(|before| &before.files);
        note.files
            .extend(old.filter(|file| !new.has_file(&file.name)).cloned());
        note
    }

    /// The contents of the nodes' data folders.
    pub fn names(&self) -> Names<'_> {
        let files: HashSet<&Path> = self.files.iter().map(|file| file.name.as_path()).collect();
        let above = files.iter().flat_map(|file| file.ancestors().skip(1));
        Names {
            folders: above.collect(),
            files,
        }
    }
}

/// The names that a split created, below a node's data folder.
#[derive(Debug)]
pub struct Names<'a> {
    files: HashSet<&'a Path>,
    folders: HashSet<&'a Path>,
}

impl Names<'_> {
    pub fn has_file(&self, name: &Path) -> bool {
        self.files.contains(name)
    }

    pub fn has_folder(&self, name: &Path) -> bool {
        self.folders.contains(name)
    }
}
