//! A file that shrinks while it is read is an error; a map exists only where it cannot.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use paddlecloud_recordio::{Compressor, Limits, MappedFile, ReadError, RecordFile};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::samples::*;

fn shrink(path: &Path, len: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(len)
        .unwrap();
}

#[test]
fn a_shrinking_file_is_an_error_for_every_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    for compressor in [Compressor::None, Compressor::Snappy] {
        let bytes = write(&records(3000), options(compressor, 2000));
        fs::write(&path, &bytes).unwrap();
        let file = RecordFile::open(&path).unwrap();
        let mut here = file.records();
        let mut ahead = file.range_parallel(0..3000, threads(2)).unwrap();
        let mut random = file.random(1 << 20);
        assert!(here.next_record().unwrap().is_some());
        assert!(ahead.next_record().unwrap().is_some());
        assert!(random.get(0).is_ok());

        shrink(&path, 1000);
        let shrunk = |error: ReadError| {
            let expected = bytes.len() as u64;
            matches!(error, ReadError::Shrunk { expected: e, found: 1000, .. } if e == expected)
        };
        let end = loop {
            if let Err(error) = here.next_record() {
                break error;
            }
        };
        assert!(shrunk(end));
        let end = loop {
            if let Err(error) = ahead.next_record() {
                break error;
            }
        };
        assert!(shrunk(end));
        assert!(shrunk(random.get(2999).unwrap_err()));
    }
}

fn memory_file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("sample", MemfdFlags::ALLOW_SEALING).unwrap());
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_sealed_file_can_be_mapped_and_no_other() {
    let all = records(100);
    let file = memory_file(&write(&all, options(Compressor::None, 900)));
    assert!(MappedFile::map_sealed(&file, Path::new("unsealed")).is_err());
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
    let map = MappedFile::map_sealed(&file, Path::new("sealed")).unwrap();
    assert!(file.set_len(10).is_err());
    let mut reader = map.reader(Limits::default());
    for record in &all {
        let read = reader.next_record().unwrap().unwrap();
        assert_eq!(read, record);
    }
    assert!(reader.next_record().unwrap().is_none());

    let on_disk = tempfile::tempfile().unwrap();
    assert!(MappedFile::map_sealed(&on_disk, Path::new("disk")).is_err());
}
