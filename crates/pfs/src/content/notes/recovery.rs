//! What is known in memory, after whatever ended the server before: as it was saved, brought up to date by the log.

use super::frames::{FILES, Frame, GONE, MARK, MOVED, RECORDED};
use crate::content::Hint;
use crate::content::hints::AT_ONCE;
use crate::content::known::Known;
use crate::content::stored::Stored;

/// What the log is told to when it is opened.
pub(in crate::content) struct Recovery<'a> {
    known: &'a mut Known,
    stored: &'a Stored,
    /// Behind it stands what came after all was saved.
    mark: Option<&'a str>,
    is_newer: bool,
    /// Whether the mark was found.
    pub is_marked: bool,
}

impl<'a> Recovery<'a> {
    /// Begins with what was saved, and the mark that was made then. Without any, all of the log is newer.
    pub fn new(known: &'a mut Known, stored: &'a Stored, saved_at: Option<&'a str>) -> Self {
        Self {
            known,
            stored,
            mark: saved_at,
            is_newer: saved_at.is_none(),
            is_marked: false,
        }
    }

    pub(super) fn take(&mut self, kind: u8, frame: &Frame) {
        self.take_stored(kind, frame);
        if kind == MARK && self.mark.is_some_and(|mark| mark.as_bytes() == frame.mark()) {
            (self.is_newer, self.is_marked) = (true, true);
        }
        if self.is_newer {
            self.take_known(kind, frame);
        }
    }

    /// What small files were is told by their stamps, so that nothing has to be forgotten.
    fn take_stored(&self, kind: u8, frame: &Frame) {
        if kind == FILES {
            let contents = frame.contents();
            contents.for_each(|(_, (stamp, digest))| self.stored.insert(&stamp, &digest));
        }
        let moved = (kind == MOVED).then(|| frame.moved()).flatten();
        if let Some((before, after)) = moved.and_then(|moved| moved.file) {
            self.stored.carry(&before, &after);
        }
    }

    fn take_known(&mut self, kind: u8, frame: &Frame) {
        let known = &mut *self.known;
        match kind {
            RECORDED => {
                for (place, (stamp, digest)) in frame.files() {
                    known.record(Hint { place, stamp, digest });
                }
            }
            // Taking the places of so many files apart is not for nothing only where something is known.
            _ if known.len() == 0 => {}
            FILES => frame.files().for_each(|(place, _)| known.remove(&place)),
            GONE => while known.remove_below(&frame.place, AT_ONCE) {},
            MOVED => {
                if let Some(moved) = frame.moved() {
                    while known.remove_below(&moved.to, AT_ONCE) {}
                    while known.carry(&moved, AT_ONCE) {}
                }
            }
            _ => {}
        }
    }
}
