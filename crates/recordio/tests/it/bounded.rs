//! Whatever a file contains, reading it takes bounded memory and time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paddlecloud_recordio::{
    Compressor, Fault, Limits, Policy, ReadAt, ReadError, ReadOptions, RecordFile, StreamReader,
};

use crate::samples::*;

/// Bytes that count how many of them were read.
struct Counted {
    bytes: Vec<u8>,
    read: Arc<AtomicU64>,
}

impl ReadAt for Counted {
    fn len(&self) -> io::Result<u64> {
        ReadAt::len(&self.bytes)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.bytes.read_exact_at(buf, offset)
    }
}

/// Reads everything with skipping, and returns how many bytes that took per byte of the file.
fn effort(bytes: Vec<u8>) -> u64 {
    let read = Arc::new(AtomicU64::new(0));
    let len = bytes.len() as u64;
    let source = Counted {
        bytes,
        read: Arc::clone(&read),
    };
    let file: RecordFile<Counted> = ReadOptions::new()
        .policy(SKIP)
        .open_source(source, "counted")
        .unwrap();
    file.verify().unwrap();
    read.load(Ordering::Relaxed) / len
}

/// Chunks of one small record each.
fn tiny_chunks(count: usize) -> Vec<u8> {
    write(&vec![b"x".to_vec(); count], options(Compressor::None, 0))
}

#[test]
fn false_starts_are_followed_once() {
    const CHUNKS: usize = 20_000;
    let inner = tiny_chunks(CHUNKS);
    // A chunk without a header: all its inner chunks are false starts that lead nowhere.
    let lost = [&[0xee; 20][..], &inner, b"the end of the record"].concat();
    assert!(
        effort(lost) < 100,
        "chains that break are followed again and again"
    );

    // Every inner chunk leads to the end, yet each is in a record that ends with it.
    let mut enclosed = vec![0xee; 20];
    for chunk in inner.chunks(25) {
        enclosed.extend_from_slice(&25u32.to_le_bytes());
        enclosed.extend_from_slice(chunk);
    }
    assert!(
        effort(enclosed) < 100,
        "chains that hold are followed again and again"
    );
}

#[test]
fn the_cost_per_byte_does_not_grow_with_damage() {
    let damaged = |chunks| {
        let mut bytes = tiny_chunks(chunks);
        bytes.chunks_mut(50).for_each(|pair| pair[0] ^= 1);
        effort(bytes)
    };
    let (few, many) = (damaged(4_000), damaged(32_000));
    assert!(
        many <= 2 * few,
        "{few} reads per byte of a small file, {many} of a large one"
    );
}

#[test]
fn a_size_beyond_the_input_reserves_no_memory() {
    let mut bytes = write(&records(3), options(Compressor::Snappy, 1 << 20));
    bytes[12..16].copy_from_slice(&(u32::MAX - 4).to_le_bytes());
    let fault_of = |error| match error {
        ReadError::Damaged { fault, .. } => fault,
        other => panic!("{other}"),
    };
    let limit = Limits::default();
    let mut stream = StreamReader::named(&bytes[..], "stream".as_ref(), limit);
    assert!(matches!(
        fault_of(stream.next_record().unwrap_err()),
        Fault::TooLarge { .. }
    ));
    let all = Limits::new(u64::MAX);
    let mut stream = StreamReader::named(&bytes[..], "stream".as_ref(), all);
    assert!(matches!(
        fault_of(stream.next_record().unwrap_err()),
        Fault::Truncated { .. }
    ));
    let file = open(&bytes, Policy::Strict).map(|_| ());
    assert!(matches!(fault_of(file.unwrap_err()), Fault::Truncated { .. }));
}

#[test]
fn a_chunk_beyond_the_limit_is_refused_packed_or_unpacked() {
    for compressor in Compressor::ALL {
        let bytes = write(&[vec![0; 1 << 20]], options(compressor, 1 << 20));
        let limits = Limits::new(1 << 19);
        let file = ReadOptions::new()
            .limits(limits)
            .open_source(bytes, "bomb")
            .unwrap();
        let error = file.records().next_record().map(|_| ()).unwrap_err();
        let too_large = Fault::TooLarge { limit: 1 << 19 };
        assert!(
            matches!(&error, ReadError::Damaged { fault, .. } if *fault == too_large),
            "{compressor}: {error}"
        );
    }
}
