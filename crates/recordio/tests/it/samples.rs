//! Records, files made of them, and the ways to read those back.

use std::num::NonZeroUsize;

use paddlecloud_recordio::{
    Batch, Compressor, DamageReport, Index, Policy, ReadError, ReadOptions, RecordFile, SkipBound,
    SliceReader, StreamReader, WriteOptions, Writer,
};

pub const SKIP: Policy = Policy::Skip(SkipBound::UNLIMITED);

pub type Records = Vec<Vec<u8>>;

/// `count` records of different lengths, some empty, some compressible.
pub fn records(count: usize) -> Records {
    let byte = |i: usize, j: usize| match i % 3 {
        0 => (i * 7) as u8,
        _ => (((i * 131 + j * 977) * (j + 3)) >> 3) as u8,
    };
    let record = |i: usize| (0..i * 53 % 311).map(|j| byte(i, j)).collect();
    (0..count).map(record).collect()
}

pub fn write(records: &[Vec<u8>], options: WriteOptions) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap().0
}

pub fn options(compressor: Compressor, chunk_size: u64) -> WriteOptions {
    WriteOptions::new().compressor(compressor).chunk_size(chunk_size)
}

pub fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

pub fn open(bytes: &[u8], policy: Policy) -> Result<RecordFile<Vec<u8>>, ReadError> {
    ReadOptions::new()
        .policy(policy)
        .open_source(bytes.to_vec(), "sample.rio")
}

pub fn index_of(bytes: &[u8]) -> Index {
    open(bytes, Policy::Strict).unwrap().index().clone()
}

/// All records up to the end or the first error.
pub fn read_stream(bytes: &[u8]) -> (Records, Result<(), ReadError>) {
    let mut reader = StreamReader::new(bytes);
    let mut records = Vec::new();
    let result = loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record.to_vec()),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    (records, result)
}

/// All records of a stream that skips damage, and what it passed over.
pub fn skim_stream(bytes: &[u8]) -> (Records, DamageReport) {
    let mut reader = StreamReader::new(bytes).policy(SKIP);
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record.to_vec());
    }
    (records, reader.damage().clone())
}

pub fn read_slice(bytes: &[u8]) -> (Records, Result<(), ReadError>) {
    let mut reader = SliceReader::new(bytes);
    let mut records = Vec::new();
    let result = loop {
        match reader.next_chunk() {
            Ok(Some(chunk)) => records.extend(chunk.iter().map(<[u8]>::to_vec)),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    (records, result)
}

pub fn read_strict(bytes: &[u8]) -> Result<Records, ReadError> {
    let file = open(bytes, Policy::Strict)?;
    let mut batch = Batch::new();
    let mut reader = file.records();
    while reader.read_batch(5, &mut batch)? > 0 {}
    Ok(to_vecs(&batch))
}

pub fn to_vecs(batch: &Batch) -> Records {
    batch.iter().map(<[u8]>::to_vec).collect()
}

pub fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bad = bytes.to_vec();
    bad[bit / 8] ^= 1 << (bit % 8);
    bad
}
