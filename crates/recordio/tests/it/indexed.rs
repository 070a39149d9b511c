//! A stored index: what it saves and what only it can detect.

use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::{
    Compressor, Fault, FileWriter, IndexFault, IndexFile, IndexUse, LostRecords, Policy, ReadError,
    ReadOptions, RecordFile, index_path, store_index,
};

use crate::samples::*;

struct Indexed {
    _folder: tempfile::TempDir,
    path: PathBuf,
    records: Records,
}

fn indexed() -> Indexed {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train-00000");
    let all = records(60);
    let options = options(Compressor::Snappy, 500);
    let mut writer = FileWriter::create_with_index(&path, options, IndexFile::Stored).unwrap();
    all.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    Indexed {
        _folder: folder,
        path,
        records: all,
    }
}

fn cut(path: &Path, len: u64) {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(len)
        .unwrap();
}

#[test]
fn the_stored_index_is_the_scanned_one() {
    let sample = indexed();
    let stored = ReadOptions::new()
        .index(IndexUse::Required)
        .open(&sample.path)
        .unwrap();
    let scanned = ReadOptions::new()
        .index(IndexUse::Never)
        .open(&sample.path)
        .unwrap();
    assert!(stored.index_is_stored() && !scanned.index_is_stored());
    assert_eq!(stored.index(), scanned.index());
    assert_eq!(stored.len(), sample.records.len() as u64);
}

#[test]
fn an_index_can_be_added_later() {
    let sample = indexed();
    let by_writer = fs::read(index_path(&sample.path)).unwrap();
    fs::remove_file(index_path(&sample.path)).unwrap();
    let file = RecordFile::open(&sample.path).unwrap();
    store_index(&sample.path, file.index()).unwrap();
    assert_eq!(fs::read(index_path(&sample.path)).unwrap(), by_writer);
}

#[test]
fn only_the_index_sees_a_cut_between_two_chunks() {
    let sample = indexed();
    let chunks = RecordFile::open(&sample.path).unwrap().index().chunks().to_vec();
    let end = chunks.last().unwrap().bytes().end;
    let third = chunks[3].offset;
    cut(&sample.path, third);

    let unindexed = ReadOptions::new()
        .index(IndexUse::Never)
        .open(&sample.path)
        .unwrap();
    assert_eq!(unindexed.len(), chunks[3].first_record);

    let Err(ReadError::Damaged { offset, fault, .. }) = RecordFile::open(&sample.path) else {
        panic!("the cut went unnoticed");
    };
    assert_eq!(
        (offset, fault),
        (third, Fault::CutBeforeIndexedEnd { expected: end })
    );

    let skipping = ReadOptions::new().policy(SKIP).open(&sample.path).unwrap();
    let mut reader = skipping.records();
    let mut read = 0;
    while reader.next_record().unwrap().is_some() {
        read += 1;
    }
    let [lost] = reader.damage().ranges() else {
        panic!("{:?}", reader.damage())
    };
    assert_eq!(lost.bytes, third..end);
    assert_eq!(lost.records, LostRecords::Known(60 - read));
}

#[test]
fn a_file_that_grew_has_an_outdated_index() {
    let sample = indexed();
    let mut bytes = fs::read(&sample.path).unwrap();
    bytes.extend_from_slice(&write(&records(3), options(Compressor::None, 10)));
    fs::write(&sample.path, bytes).unwrap();
    let result = RecordFile::open(&sample.path).map(|_| ());
    assert!(
        matches!(
            result,
            Err(ReadError::BadIndex {
                reason: IndexFault::Outdated { .. },
                ..
            })
        ),
        "{result:?}"
    );
}

#[test]
fn with_an_index_a_destroyed_header_hides_nothing() {
    let sample = indexed();
    let chunks = RecordFile::open(&sample.path).unwrap().index().chunks().to_vec();
    let mut bytes = fs::read(&sample.path).unwrap();
    let at = chunks[2].offset as usize;
    bytes[at..at + 40].fill(0);
    fs::write(&sample.path, bytes).unwrap();
    let skipping = ReadOptions::new().policy(SKIP).open(&sample.path).unwrap();
    let damage = skipping.verify().unwrap().damage;
    let [lost] = damage.ranges() else {
        panic!("{damage:?}")
    };
    assert_eq!(lost.bytes, chunks[2].bytes());
    assert_eq!(lost.records, LostRecords::Known(chunks[2].header.records.into()));
}

#[test]
fn a_damaged_or_missing_index_is_named() {
    let sample = indexed();
    let index = index_path(&sample.path);
    let bytes = fs::read(&index).unwrap();
    fs::write(&index, flipped(&bytes, 300)).unwrap();
    let reason = |result: Result<RecordFile, ReadError>| match result.map(|_| ()) {
        Err(ReadError::BadIndex { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(RecordFile::open(&sample.path)), IndexFault::Checksum);
    fs::remove_file(&index).unwrap();
    let required = ReadOptions::new().index(IndexUse::Required);
    assert_eq!(reason(required.open(&sample.path)), IndexFault::Missing);
}

#[test]
fn a_damaged_file_gets_no_index() {
    let good = write(&records(20), options(Compressor::None, 200));
    let file = open(&flipped(&good, 0), SKIP).unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert!(store_index(&folder.path().join("data"), file.index()).is_err());
    assert!(open(&flipped(&good, 0), Policy::Strict).is_err());
}
