//! Writes records to any writer.
//!
//! `file_writer` writes files that appear complete or not at all.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::buffer::Buffer;
use crate::compressor::{Compressor, Packer};
use crate::draft::Draft;
use crate::error::WriteError;
use crate::layout::{Header, MAX_RECORD_LEN};
use crate::pool::OrderedPool;

/// The default chunk size: small enough to stay in a core's cache.
pub const DEFAULT_CHUNK_SIZE: u64 = 1 << 20;

/// How records are put into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    pub(crate) compressor: Compressor,
    pub(crate) chunk_size: u64,
    pub(crate) threads: NonZeroUsize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            compressor: Compressor::default(),
            chunk_size: DEFAULT_CHUNK_SIZE,
            threads: NonZeroUsize::MIN,
        }
    }
}

impl WriteOptions {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn compressor(self, compressor: Compressor) -> Self {
        Self { compressor, ..self }
    }

    /// The most record bytes in a chunk, without lengths; a larger record gets its own chunk. At 0 every non-empty
    /// record does.
    pub fn chunk_size(self, chunk_size: u64) -> Self {
        Self { chunk_size, ..self }
    }

    /// Compresses on this many threads; up to three chunks per thread are then kept in memory.
    pub fn threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    pub records: u64,
    pub chunks: u64,
    pub bytes: u64,
}

/// Puts records into chunks and writes those. Call [`Writer::finish`]: dropping loses the last chunk.
pub struct Writer<W> {
    out: W,
    name: PathBuf,
    options: WriteOptions,
    draft: Draft,
    packing: Packing,
    written: Written,
    headers: Option<Vec<Header>>,
    failed: bool,
}

enum Packing {
    Here {
        packer: Box<Packer>,
        packed: Buffer,
    },
    Threads {
        pool: OrderedPool<Work, Work>,
        spare: Vec<Work>,
    },
}

/// A chunk in the pool, with its buffers.
struct Work {
    draft: Draft,
    packed: Buffer,
    sealed: io::Result<Option<Header>>,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, options: WriteOptions) -> Result<Self, WriteError> {
        Self::named(out, Path::new("<stream>"), options)
    }

    /// `name` is the destination's name in errors.
    pub fn named(out: W, name: &Path, options: WriteOptions) -> Result<Self, WriteError> {
        Ok(Self {
            out,
            name: name.to_owned(),
            options,
            draft: Draft::new(),
            packing: Packing::new(&options).map_err(|e| WriteError::io(name, e))?,
            written: Written::default(),
            headers: None,
            failed: false,
        })
    }

    /// Also keeps the headers of all chunks, for an index.
    pub(crate) fn keep_headers(mut self) -> Self {
        self.headers = Some(Vec::new());
        self
    }

    pub fn write(&mut self, record: &[u8]) -> Result<(), WriteError> {
        let len = record.len() as u64;
        if len > MAX_RECORD_LEN {
            return Err(WriteError::RecordTooLarge { len });
        }
        if !self.draft.has_room(len, self.options.chunk_size) {
            self.flush_chunk()?;
        }
        self.draft.push(record);
        self.written.records += 1;
        Ok(())
    }

    /// Ends the current chunk here, full or not.
    pub fn flush_chunk(&mut self) -> Result<(), WriteError> {
        self.guarded(Self::seal_draft)
    }

    /// Writes the rest and returns the destination, flushed.
    pub fn finish(self) -> Result<(W, Written), WriteError> {
        let (out, written, _) = self.finish_with_headers()?;
        Ok((out, written))
    }

    pub(crate) fn finish_with_headers(mut self) -> Result<(W, Written, Vec<Header>), WriteError> {
        self.guarded(|this| {
            this.seal_draft()?;
            while let Some(work) = this.packing.take_next() {
                this.write_work(&work)?;
            }
            this.out.flush().map_err(|e| WriteError::io(&this.name, e))
        })?;
        Ok((self.out, self.written, self.headers.unwrap_or_default()))
    }

    /// After a failed write the destination may contain a part of a chunk: nothing may follow it.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<(), WriteError>) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::AlreadyFailed {
                file: self.name.clone(),
            });
        }
        let result = step(self);
        self.failed = result.is_err();
        result
    }

    fn seal_draft(&mut self) -> Result<(), WriteError> {
        if self.draft.is_empty() {
            return Ok(());
        }
        let compressor = self.options.compressor;
        match &mut self.packing {
            Packing::Here { packer, packed } => {
                let sealed = self.draft.seal(compressor, packer, packed);
                let header = unwrap_sealed(sealed, &self.name)?;
                let chunk = self.draft.chunk(compressor, packed);
                self.out
                    .write_all(chunk)
                    .map_err(|e| WriteError::io(&self.name, e))?;
                self.account(header);
                self.draft.clear();
                Ok(())
            }
            Packing::Threads { pool, .. } => {
                if pool.is_full()
                    && let Some(work) = pool.next()
                {
                    self.write_work(&work)?;
                    self.packing.give_back(work);
                }
                self.packing.submit(&mut self.draft);
                Ok(())
            }
        }
    }

    fn write_work(&mut self, work: &Work) -> Result<(), WriteError> {
        let header = match &work.sealed {
            Ok(header) => Ok(*header),
            Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
        };
        let header = unwrap_sealed(header, &self.name)?;
        let chunk = work.draft.chunk(self.options.compressor, &work.packed);
        self.out
            .write_all(chunk)
            .map_err(|e| WriteError::io(&self.name, e))?;
        self.account(header);
        Ok(())
    }

    fn account(&mut self, header: Header) {
        self.written.chunks += 1;
        self.written.bytes += header.chunk_len();
        if let Some(headers) = &mut self.headers {
            headers.push(header);
        }
    }
}

fn unwrap_sealed(sealed: io::Result<Option<Header>>, name: &Path) -> Result<Header, WriteError> {
    let header = sealed.map_err(|e| WriteError::io(name, e))?;
    header.ok_or_else(|| WriteError::ChunkTooLarge {
        file: name.to_owned(),
    })
}

impl Packing {
    fn new(options: &WriteOptions) -> io::Result<Self> {
        let compressor = options.compressor;
        // Without compression there is nothing for threads to do.
        if options.threads == NonZeroUsize::MIN || compressor == Compressor::None {
            return Ok(Self::Here {
                packer: Box::default(),
                packed: Buffer::default(),
            });
        }
        let worker = move || {
            let mut packer = Packer::default();
            move |mut work: Work| {
                work.sealed = work.draft.seal(compressor, &mut packer, &mut work.packed);
                work
            }
        };
        Ok(Self::Threads {
            pool: OrderedPool::start(options.threads.get(), "recordio-pack", worker)?,
            spare: Vec::new(),
        })
    }

    /// Passes the draft to a thread and replaces it by an empty one.
    fn submit(&mut self, draft: &mut Draft) {
        if let Self::Threads { pool, spare } = self {
            let mut work = spare.pop().unwrap_or_else(|| Work {
                draft: Draft::new(),
                packed: Buffer::default(),
                sealed: Ok(None),
            });
            std::mem::swap(&mut work.draft, draft);
            pool.submit(work);
        }
    }

    fn take_next(&mut self) -> Option<Work> {
        match self {
            Self::Here { .. } => None,
            Self::Threads { pool, .. } => pool.next(),
        }
    }

    fn give_back(&mut self, mut work: Work) {
        work.draft.clear();
        if let Self::Threads { spare, .. } = self {
            spare.push(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk_records(chunk_size: u64, lens: &[usize]) -> Vec<u32> {
        let options = WriteOptions::new()
            .compressor(Compressor::None)
            .chunk_size(chunk_size);
        let mut writer = Writer::new(Vec::new(), options).unwrap().keep_headers();
        for len in lens {
            writer.write(&vec![b'x'; *len]).unwrap();
        }
        let (_, _, headers) = writer.finish_with_headers().unwrap();
        headers.iter().map(|header| header.records).collect()
    }

    #[test]
    fn a_chunk_takes_records_up_to_its_size() {
        assert_eq!(chunk_records(10, &[5, 5, 1, 9, 1]), [2, 2, 1]);
        assert_eq!(chunk_records(10, &[4, 11, 4, 4]), [1, 1, 2]);
        assert_eq!(chunk_records(0, &[1, 1, 0, 0, 1]), [1, 1, 2, 1]);
        assert_eq!(chunk_records(10, &[]), [0u32; 0]);
    }

    #[test]
    fn bytes_of_an_uncompressed_chunk_are_as_specified() {
        let options = WriteOptions::new().compressor(Compressor::None);
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        writer.write(b"ab").unwrap();
        writer.write(b"").unwrap();
        let (bytes, written) = writer.finish().unwrap();
        let payload = b"\x02\0\0\0ab\0\0\0\0";
        let mut expected = b"\x04\x03\x02\x01".to_vec();
        expected.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        expected.extend_from_slice(b"\0\0\0\0\x0a\0\0\0\x02\0\0\0");
        expected.extend_from_slice(payload);
        assert_eq!(bytes, expected);
        assert_eq!(
            written,
            Written {
                records: 2,
                chunks: 1,
                bytes: 30
            }
        );
    }

    #[test]
    fn threads_change_nothing_in_the_bytes() {
        let write = |threads: usize, compressor| {
            let threads = NonZeroUsize::new(threads).unwrap();
            let options = WriteOptions::new()
                .compressor(compressor)
                .chunk_size(1000)
                .threads(threads);
            let mut writer = Writer::new(Vec::new(), options).unwrap();
            for i in 0..2000u32 {
                writer.write(&vec![i as u8; i as usize % 97]).unwrap();
            }
            writer.finish().unwrap()
        };
        for compressor in Compressor::ALL {
            assert_eq!(write(1, compressor), write(3, compressor));
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_written_after_a_failed_write() {
        let mut writer = Writer::new(Full, WriteOptions::new().chunk_size(0)).unwrap();
        writer.write(b"a").unwrap();
        assert!(matches!(writer.write(b"b"), Err(WriteError::Io { .. })));
        assert!(matches!(
            writer.write(b"c"),
            Err(WriteError::AlreadyFailed { .. })
        ));
        assert!(matches!(writer.finish(), Err(WriteError::AlreadyFailed { .. })));
    }
}
