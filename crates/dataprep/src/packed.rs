//! A file being written, optionally compressed with gzip.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

const BUFFER_LEN: usize = 128 << 10;

/// Whether the file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
}

/// A destination for bytes. Without [`PackedFile::finish`] its end is missing.
pub(crate) enum PackedFile {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl PackedFile {
    pub(crate) fn new(file: File, packing: Packing) -> Self {
        let plain = BufWriter::with_capacity(BUFFER_LEN, file);
        match packing {
            Packing::None => Self::Plain(plain),
            // The time in gzip's header stays 0, so the same data creates the same file.
            Packing::Gzip => Self::Gzip(Box::new(GzEncoder::new(plain, Compression::default()))),
        }
    }

    /// Writes the rest and makes it durable.
    pub(crate) fn finish(self) -> io::Result<()> {
        let plain = match self {
            Self::Plain(plain) => plain,
            Self::Gzip(gzip) => gzip.finish()?,
        };
        plain.into_inner()?.sync_all()
    }
}

impl Write for PackedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.write(bytes),
            Self::Gzip(gzip) => gzip.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.flush(),
            Self::Gzip(gzip) => gzip.flush(),
        }
    }
}
