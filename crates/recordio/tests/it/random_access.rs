//! Records by number, one and many.

use paddlecloud_recordio::{Batch, Compressor, FileWriter, Policy, ReadError, RecordFile};

use crate::samples::*;

/// A fixed, scattered order with repeats.
fn scattered(len: u64) -> Vec<u64> {
    (0..3 * len).map(|i| i * i * 31 % len).collect()
}

#[test]
fn records_come_in_the_requested_order_with_any_cache_size() {
    let all = records(100);
    for compressor in Compressor::ALL {
        let file = open(&write(&all, options(compressor, 500)), Policy::Strict).unwrap();
        for cache in [0, 1000, 1 << 20] {
            let mut reader = file.random(cache);
            let numbers = scattered(100);
            let mut batch = Batch::new();
            reader.get_many(&numbers, &mut batch).unwrap();
            let expected: Records = numbers.iter().map(|i| all[*i as usize].clone()).collect();
            assert_eq!(to_vecs(&batch), expected);
            for i in numbers {
                assert_eq!(reader.get(i).unwrap(), all[i as usize]);
            }
        }
    }
}

#[test]
fn a_batch_is_filled_completely_or_not_at_all() {
    let file = open(
        &write(&records(10), options(Compressor::None, 100)),
        Policy::Strict,
    )
    .unwrap();
    let mut reader = file.random(1 << 20);
    let mut batch = Batch::new();
    batch.push(b"before");
    let error = reader.get_many(&[3, 1, 10], &mut batch).unwrap_err();
    assert!(matches!(
        error,
        ReadError::NoSuchRecord {
            record: 10,
            len: 10,
            ..
        }
    ));
    assert_eq!(to_vecs(&batch), [b"before".to_vec()]);
}

#[test]
fn a_damaged_chunk_cannot_be_asked_for_even_when_skipping() {
    let good = write(&records(100), options(Compressor::Snappy, 500));
    let chunk = index_of(&good).chunks()[2];
    let file = open(&flipped(&good, (chunk.offset as usize + 30) * 8), SKIP).unwrap();
    let mut reader = file.random(1 << 20);
    assert!(reader.get(0).is_ok());
    let error = reader.get(chunk.first_record).unwrap_err();
    assert!(matches!(error, ReadError::Damaged { offset, .. } if offset == chunk.offset));
}

#[test]
fn damage_after_the_first_touch_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let mut writer = FileWriter::create(&path, options(Compressor::None, 1 << 20)).unwrap();
    records(50)
        .iter()
        .for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();

    let mut reader = RecordFile::open(&path).unwrap().random(1 << 20);
    assert_eq!(reader.get(40).unwrap(), records(50)[40]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.iter_mut().skip(20).for_each(|byte| *byte ^= 1);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    assert!(matches!(reader.get(41), Err(ReadError::Damaged { .. })));
}
