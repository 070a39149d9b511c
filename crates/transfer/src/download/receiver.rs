//! Writes the bytes of a reply into a staged file. Whole chunks are hashed on the way, so that they need not be read again.

use std::ops::Range;

use paddlecloud_pfs::content::{Assembly, AssemblyError, CHUNK, ChunkWriter};

/// Receives a range of a file.
pub(super) struct Receiver {
    assembly: Assembly,
    rest: Range<u64>,
    chunk: Option<ChunkWriter>,
}

impl Receiver {
    pub(super) fn new(assembly: Assembly, rest: Range<u64>) -> Receiver {
        Receiver {
            assembly,
            rest,
            chunk: None,
        }
    }

    /// The bytes that have not arrived.
    pub(super) fn rest(&self) -> Range<u64> {
        self.rest.clone()
    }

    /// Takes the next bytes, in pieces of any length. Bytes after the range are ignored.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), AssemblyError> {
        while !bytes.is_empty() && !self.rest.is_empty() {
            let at = self.rest.start;
            let end = self.rest.end.min((at / CHUNK + 1) * CHUNK);
            let len = bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at(len);
            match self
                .chunk
                .take()
                .map_or_else(|| self.begin(end), |chunk| Ok(Some(chunk)))?
            {
                Some(mut chunk) => {
                    chunk.write(now)?;
                    match at + len as u64 == end {
                        true => chunk.finish(None)?,
                        false => self.chunk = Some(chunk),
                    }
                }
                None => self.assembly.put_range(at, now)?,
            }
            self.rest.start += len as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Keeps the part of a chunk that arrived before its reply broke off.
    pub(super) fn keep(self) -> Result<(), AssemblyError> {
        self.chunk.map_or(Ok(()), ChunkWriter::keep)
    }

    /// Begins a chunk if all of it is to come.
    fn begin(&self, end: u64) -> Result<Option<ChunkWriter>, AssemblyError> {
        let index = self.rest.start / CHUNK;
        let is_whole = self.assembly.layout().range(index) == Some((self.rest.start, end - self.rest.start));
        is_whole.then(|| self.assembly.chunk(index)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paddlecloud_pfs::content::AssemblyPlan;
    use paddlecloud_pfs::{Digest, Existing, Root};

    #[test]
    fn pieces_of_any_length_are_received_and_a_broken_reply_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..2 * CHUNK + 1000).map(|index| (index % 251) as u8).collect();
        let size = content.len() as u64;
        let root = Root::open(folder.path()).unwrap();
        let plan = AssemblyPlan {
            path: "copy".parse().unwrap(),
            size,
            executable: false,
            mtime: None,
        };
        let assembly = Assembly::create(&root, plan).unwrap();
        let mut receiver = Receiver::new(assembly.clone(), 0..size);
        let broken = CHUNK as usize + 70_000;
        for piece in content[..broken].chunks(65_537) {
            receiver.feed(piece).unwrap();
        }
        assert_eq!(receiver.rest(), broken as u64..size);
        receiver.keep().unwrap();
        assert_eq!(assembly.missing(), vec![broken as u64..size]);
        let mut receiver = Receiver::new(assembly.clone(), broken as u64..size);
        for piece in content[broken..].chunks(100_003) {
            receiver.feed(piece).unwrap();
        }
        assert!(receiver.rest().is_empty());
        let named: Vec<u64> = assembly.checked().iter().map(|(index, _)| *index).collect();
        assert_eq!(named, [0, 2], "only these need not be read again");
        assembly.commit(Digest::of(&content), Existing::Replace).unwrap();
        assert!(std::fs::read(folder.path().join("copy")).unwrap() == content);
    }
}
