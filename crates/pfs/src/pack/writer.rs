//! Writes a pack stream, one entry at a time, in constant memory.

use std::io::{Read, Write};

use super::{MAGIC, PackError, PackTotals, head};
use crate::digest::Digest;
use crate::entry::{Entry, Node};
use crate::order::TreeOrder;
use crate::root::{Root, RootError};

/// Encodes entries as a stream. Readers refuse it without [`PackWriter::finish`].
pub struct PackWriter<W: Write> {
    out: W,
    seal: blake3::Hasher,
    content: blake3::Hasher,
    order: TreeOrder,
    totals: PackTotals,
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` that are not written yet.
    filled: usize,
}

const BUFFER: usize = 256 << 10;

impl<W: Write> PackWriter<W> {
    /// Starts a stream.
    pub fn new(out: W) -> Result<Self, PackError> {
        let mut writer = Self {
            out,
            seal: blake3::Hasher::new(),
            content: blake3::Hasher::new(),
            order: TreeOrder::default(),
            totals: PackTotals::default(),
            buffer: vec![0; BUFFER],
            filled: 0,
        };
        writer.put_sealed(MAGIC)?;
        Ok(writer)
    }

    /// Adds a file with content from any reader, which must return exactly the entry's size.
    ///
    /// A known digest is sent without hashing again: the reader checks it anyway.
    pub fn add_file(&mut self, entry: &Entry, mut content: impl Read) -> Result<(), PackError> {
        self.begin(entry)?;
        let known = entry.digest();
        let mut left = entry.size();
        self.content.reset();
        while left > 0 {
            let read = self.fill_from(&mut content, left, entry)?;
            if known.is_none() {
                self.content.update(&self.buffer[self.filled..self.filled + read]);
            }
            self.filled += read;
            left -= read as u64;
        }
        let digest = known.unwrap_or_else(|| self.content.finalize().into());
        self.totals.bytes += entry.size();
        self.put_sealed(digest.as_bytes())
    }

    /// Adds a folder or a link.
    pub fn add_node(&mut self, entry: &Entry) -> Result<(), PackError> {
        self.begin(entry)?;
        match &entry.node {
            Node::Symlink { target } => self.put_sealed(target.as_bytes()),
            Node::Dir | Node::File { .. } => Ok(()),
        }
    }

    /// The destination, for taking what was written so far.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the end mark and returns the destination.
    pub fn finish(mut self) -> Result<(W, PackTotals), PackError> {
        self.put_sealed(&head::encode_end(self.totals))?;
        let seal: Digest = self.seal.finalize().into();
        self.put(seal.as_bytes())?;
        self.flush_buffer()?;
        self.out.flush().map_err(PackError::Stream)?;
        Ok((self.out, self.totals))
    }

    fn begin(&mut self, entry: &Entry) -> Result<(), PackError> {
        self.order.accept(entry)?;
        self.totals.entries += 1;
        self.put_sealed(&head::encode_entry(entry))?;
        self.put_sealed(entry.path.as_bytes())
    }

    /// Reads content directly into the free part of the buffer.
    fn fill_from(&mut self, content: &mut impl Read, left: u64, entry: &Entry) -> Result<usize, PackError> {
        if self.filled == self.buffer.len() {
            self.flush_buffer()?;
        }
        let room = self.buffer.len() - self.filled;
        let step = room.min(usize::try_from(left).unwrap_or(usize::MAX));
        loop {
            match content.read(&mut self.buffer[self.filled..self.filled + step]) {
                Ok(0) => return Err(PackError::Changed(entry.path.clone())),
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RootError::io("read", &entry.path, error).into()),
            }
        }
    }

    fn put_sealed(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.seal.update(bytes);
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        if self.buffer.len() - self.filled < bytes.len() {
            self.flush_buffer()?;
        }
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        Ok(())
    }

    fn flush_buffer(&mut self) -> Result<(), PackError> {
        self.out
            .write_all(&self.buffer[..self.filled])
            .map_err(PackError::Stream)?;
        self.filled = 0;
        Ok(())
    }
}

/// Writes entries of a folder as one stream. The entries must include the folders that contain them.
pub fn write_pack<'a, W: Write>(
    root: &Root,
    entries: impl IntoIterator<Item = &'a Entry>,
    out: W,
) -> Result<(W, PackTotals), PackError> {
    let mut writer = PackWriter::new(out)?;
    for entry in entries {
        match entry.is_file() {
            true => writer.add_file(entry, root.open_file_no_links(&entry.path)?.0)?,
            false => writer.add_node(entry)?,
        }
    }
    writer.finish()
}
