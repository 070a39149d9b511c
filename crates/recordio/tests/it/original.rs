//! The original's own Python library reads what we write, and we read what it writes.
//!
//! Needs a Python with the package `recordio` 0.1.7, named by PADDLECLOUD_RECORDIO_ORIGINAL_PYTHON.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use paddlecloud_recordio::{Compressor, RecordFile};

use crate::samples::*;

/// Copies records between a RecordIO file and a plain file of lengths and bytes.
const BRIDGE: &str = r#"
import struct, sys, recordio
what, source, target = sys.argv[1:]
if what == "read":
    reader = recordio.reader(source)
    with open(target, "wb") as out:
        while True:
            record = reader.read()
            if record is None:
                break
            out.write(struct.pack("<I", len(record)) + record)
    reader.close()
else:
    writer = recordio.writer(target)
    data = open(source, "rb").read()
    while data:
        n = struct.unpack("<I", data[:4])[0]
        writer.write(data[4:4 + n])
        data = data[4 + n:]
    writer.close()
"#;

fn original_python() -> OsString {
    let python = env::var_os("PADDLECLOUD_RECORDIO_ORIGINAL_PYTHON");
    python.expect("PADDLECLOUD_RECORDIO_ORIGINAL_PYTHON names a Python with recordio 0.1.7")
}

fn bridge(python: &OsString, what: &str, source: &Path, target: &Path) {
    let status = Command::new(python)
        .args(["-c", BRIDGE, what])
        .args([source, target])
        .status()
        .unwrap();
    assert!(status.success(), "the original failed to {what}");
}

fn plain(records: &[Vec<u8>]) -> Vec<u8> {
    let with_length = |record: &Vec<u8>| [&(record.len() as u32).to_le_bytes()[..], record].concat();
    records.iter().flat_map(with_length).collect()
}

#[test]
#[ignore = "needs the original RecordIO"]
fn the_original_reads_what_we_write() {
    let python = original_python();
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("plain"));
    let mut all = records(500);
    all.push((0..300_000u32).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect());
    for compressor in Compressor::ALL.into_iter().filter(|c| c.is_original()) {
        for chunk_size in [0, 1000, 1 << 20] {
            fs::write(&ours, write(&all, options(compressor, chunk_size))).unwrap();
            bridge(&python, "read", &ours, &theirs);
            assert!(
                fs::read(&theirs).unwrap() == plain(&all),
                "{compressor}, chunks of {chunk_size}"
            );
        }
    }
}

#[test]
#[ignore = "needs the original RecordIO"]
fn we_read_what_the_original_writes() {
    let python = original_python();
    let folder = tempfile::tempdir().unwrap();
    let (source, theirs) = (folder.path().join("plain"), folder.path().join("theirs"));
    let all = records(500);
    fs::write(&source, plain(&all)).unwrap();
    bridge(&python, "write", &source, &theirs);
    let file = RecordFile::open(&theirs).unwrap();
    let mut reader = file.records();
    for record in &all {
        assert_eq!(reader.next_record().unwrap().unwrap(), record);
    }
    assert!(reader.next_record().unwrap().is_none());
}
