//! One run of the fuzzer; shared by the cargo-fuzz target and `examples/fuzz_loop`.
//!
//! Nothing may panic or take more memory than the limits allow, and the readers must agree.

use paddlecloud_recordio::{
    Batch, DamageReport, Limits, Policy, ReadError, ReadOptions, RecordFile, SkipBound, SliceReader,
    StreamReader,
};

const MAX_CHUNK: u64 = 1 << 20;

pub fn run(bytes: &[u8]) {
    let limits = Limits::new(MAX_CHUNK);
    let streamed = stream(bytes, limits);
    assert_eq!(
        streamed,
        slice(bytes, limits),
        "a stream and a slice of the same bytes differ"
    );
    match (streamed.1, strict(bytes, limits)) {
        (true, Some(records)) => assert_eq!(
            records, streamed.0,
            "a stream and a file of the same bytes differ"
        ),
        (false, None) => {}
        (whole, records) => panic!("whole as a stream: {whole}, as a file: {}", records.is_some()),
    }
    skip(bytes, limits, &streamed);
    skip_stream(bytes, limits, &streamed);
}

/// The records before the end or the first fault, and which of the two it was.
type Read = (Vec<Vec<u8>>, bool);

fn stream(bytes: &[u8], limits: Limits) -> Read {
    let mut reader = StreamReader::named(bytes, "stream".as_ref(), limits);
    let mut records = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record.to_vec()),
            Ok(None) => return (records, true),
            Err(error) => return (records, named(&error)),
        }
    }
}

fn slice(bytes: &[u8], limits: Limits) -> Read {
    let mut reader = SliceReader::named(bytes, "slice".as_ref(), limits);
    let mut records = Vec::new();
    loop {
        match reader.next_chunk() {
            Ok(Some(chunk)) => records.extend(chunk.iter().map(<[u8]>::to_vec)),
            Ok(None) => return (records, true),
            Err(error) => return (records, named(&error)),
        }
    }
}

/// Every error of a whole file in memory is damage. Always false, for "not whole".
fn named(error: &ReadError) -> bool {
    assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
    false
}

fn open(bytes: &[u8], limits: Limits, policy: Policy) -> Result<RecordFile<Vec<u8>>, ReadError> {
    ReadOptions::new()
        .limits(limits)
        .policy(policy)
        .open_source(bytes.to_vec(), "file")
}

fn strict(bytes: &[u8], limits: Limits) -> Option<Vec<Vec<u8>>> {
    let file = open(bytes, limits, Policy::Strict).ok()?;
    let mut reader = file.records();
    let mut batch = Batch::new();
    while reader.read_batch(3, &mut batch).ok()? > 0 {}
    Some(batch.iter().map(<[u8]>::to_vec).collect())
}

/// Skipping returns at least the records before the damage, accounts for every byte, and ends.
fn skip(bytes: &[u8], limits: Limits, streamed: &Read) {
    let file =
        open(bytes, limits, Policy::Skip(SkipBound::UNLIMITED)).expect("memory can always be searched");
    let mut reader = file.records();
    let mut records = Vec::new();
    while let Some(record) = reader
        .next_record()
        .expect("nothing is beyond an unlimited bound")
    {
        records.push(record.to_vec());
    }
    let damage = reader.damage();
    check_account(&records, damage, streamed, bytes.len());
    let is_lost = |offset: u64| damage.ranges().iter().any(|range| range.bytes.contains(&offset));
    let read = reader
        .index()
        .chunks()
        .iter()
        .filter(|chunk| !is_lost(chunk.offset));
    let read: u64 = read.map(|chunk| chunk.header.chunk_len()).sum();
    assert_eq!(
        read + damage.lost_bytes(),
        bytes.len() as u64,
        "bytes are neither read nor lost"
    );
    assert_eq!(&file.verify().expect("memory can always be read").damage, damage);
}

/// The same for a stream, whose end is always within reach here.
fn skip_stream(bytes: &[u8], limits: Limits, streamed: &Read) {
    let policy = Policy::Skip(SkipBound::UNLIMITED);
    let mut reader = StreamReader::named(bytes, "stream".as_ref(), limits).policy(policy);
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().expect("a short stream is never given up") {
        records.push(record.to_vec());
    }
    check_account(&records, reader.damage(), streamed, bytes.len());
}

/// Records before the damage are returned, and lost ranges are reported in order, without overlap and within the file.
fn check_account(records: &[Vec<u8>], damage: &DamageReport, streamed: &Read, len: usize) {
    assert!(
        records.starts_with(&streamed.0),
        "records before the damage were lost"
    );
    assert_eq!(damage.is_empty(), streamed.1);
    let mut at = 0;
    for range in damage.ranges() {
        assert!(at <= range.bytes.start && range.bytes.start < range.bytes.end);
        at = range.bytes.end;
    }
    assert!(at <= len as u64, "more was lost than there is");
}
