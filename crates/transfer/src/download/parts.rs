//! Splits a stream into chunks. A chunk followed by its name is checked before it counts; otherwise the whole file is checked at
//! the end.

use paddlecloud_pfs::Digest;
use paddlecloud_pfs::content::{Assembly, AssemblyError, ChunkName, ChunkWriter};

/// Receives the chunks `next..end` of a file.
pub(super) struct PartReceiver {
    assembly: Assembly,
    next: u64,
    end: u64,
    /// Whether chunks are followed by their names.
    is_named: bool,
    current: Option<(ChunkWriter, u64)>,
    name: Vec<u8>,
    /// Chunks that arrived; if they came with names, they are verified.
    pub(super) names: Vec<(u64, ChunkName)>,
}

impl PartReceiver {
    pub(super) fn new(assembly: Assembly, first: u64, count: u64, is_named: bool) -> PartReceiver {
        PartReceiver {
            assembly,
            is_named,
            next: first,
            end: first + count,
            current: None,
            name: Vec::with_capacity(Digest::LEN),
            names: Vec::new(),
        }
    }

    /// The first missing chunk, and the number of missing ones.
    pub(super) fn missing(&self) -> (u64, u64) {
        (self.next, self.end - self.next)
    }

    /// Whether all requested chunks have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.next == self.end
    }

    /// Takes the next bytes, in pieces of any length. Bytes after the last chunk are ignored.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), AssemblyError> {
        while !bytes.is_empty() && !self.is_complete() {
            let (mut writer, left) = match self.current.take() {
                Some(current) => current,
                None => self.begin()?,
            };
            if left > 0 {
                let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                writer.write(&bytes[..take])?;
                bytes = &bytes[take..];
                let left = left - take as u64;
                if left > 0 || self.is_named {
                    self.current = Some((writer, left));
                } else {
                    let name = writer.finish_as_received()?;
                    self.arrived(name);
                }
                continue;
            }
            let take = (Digest::LEN - self.name.len()).min(bytes.len());
            self.name.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.name.len() < Digest::LEN {
                self.current = Some((writer, 0));
                continue;
            }
            self.finish(writer)?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(ChunkWriter, u64), AssemblyError> {
        let writer = self.assembly.chunk(self.next)?;
        let len = self.assembly.layout().range(self.next).map_or(0, |(_, len)| len);
        Ok((writer, len))
    }

    fn finish(&mut self, writer: ChunkWriter) -> Result<(), AssemblyError> {
        let bytes: [u8; Digest::LEN] = self.name.as_slice().try_into().expect("as long as a name");
        let name = ChunkName::from_bytes(bytes);
        writer.finish(name)?;
        self.name.clear();
        self.arrived(name);
        Ok(())
    }

    fn arrived(&mut self, name: ChunkName) {
        self.names.push((self.next, name));
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paddlecloud_pfs::content::{AssemblyPlan, CHUNK, ChunkTable};
    use paddlecloud_pfs::{Existing, Root};

    #[test]
    fn parts_arrive_in_pieces_of_any_length_and_a_flipped_bit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..CHUNK + 1000).map(|index| (index % 251) as u8).collect();
        std::fs::write(folder.path().join("source"), &content).unwrap();
        let table = ChunkTable::read(&std::fs::File::open(folder.path().join("source")).unwrap(), 1)
            .unwrap()
            .unwrap();
        let mut stream = Vec::new();
        for (chunk, name) in content.chunks(CHUNK as usize).zip(&table.names) {
            stream.extend_from_slice(chunk);
            stream.extend_from_slice(name.as_bytes());
        }
        let root = Root::open(folder.path()).unwrap();
        let plan = AssemblyPlan {
            path: "copy".parse().unwrap(),
            size: content.len() as u64,
            executable: false,
            mtime: None,
        };
        let assembly = Assembly::create(&root, plan.clone()).unwrap();
        let mut receiver = PartReceiver::new(assembly.clone(), 0, 2, true);
        for piece in stream.chunks(65_537) {
            receiver.feed(piece).unwrap();
        }
        assert!(receiver.is_complete());
        assembly
            .commit(table.digest().unwrap(), Existing::Replace)
            .unwrap();
        assert_eq!(std::fs::read(folder.path().join("copy")).unwrap(), content);

        let assembly = Assembly::create(&root, plan.clone()).unwrap();
        let mut receiver = PartReceiver::new(assembly.clone(), 0, 2, false);
        for piece in content.chunks(65_537) {
            receiver.feed(piece).unwrap();
        }
        assert_eq!(receiver.names, [(0, table.names[0]), (1, table.names[1])]);
        assert!(receiver.is_complete());
        assembly.discard().unwrap();

        stream[5] ^= 1;
        let assembly = Assembly::create(&root, plan).unwrap();
        let mut receiver = PartReceiver::new(assembly.clone(), 0, 2, true);
        let damaged = receiver.feed(&stream).unwrap_err();
        assert!(
            matches!(damaged, AssemblyError::DamagedChunk { index: 0, .. }),
            "{damaged}"
        );
        assembly.discard().unwrap();
    }
}
