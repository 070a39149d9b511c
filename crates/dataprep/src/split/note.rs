//! The note of a division, for whoever divides into a place that is no folder of this machine.

use super::tree::{Manifest, State};

/// Made while the folders of such a place are exchanged, so that two runs do not mix.
pub const LOCK_FOLDER: &str = ".paddle-data.lock.d";

impl Manifest {
    /// The note as it is stored; or why it is none, in words.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| {
            format!("the note of the division before is not what a division writes: {error}")
        })
    }

    pub fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("names, words and numbers are always JSON");
        text.push(b'\n');
        text
    }

    /// Nodes `0` to here, not included, have divided data.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The note for the time while the data of so many nodes is exchanged.
    pub fn exchanging(&self, parts: u32) -> Self {
        let mut note = self.clone();
        (note.state, note.parts) = (State::Exchanging, parts);
        note
    }
}
