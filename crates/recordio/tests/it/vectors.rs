//! Files that this library did not write: our own vectors, written by a Python program, and the original's.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::{Compressor, Layout, Policy};

use crate::samples::*;

fn own_vector(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    fs::read(folder.join(name)).unwrap()
}

/// The rule in `vectors/make.py`.
fn own_record(i: usize) -> Vec<u8> {
    (0..i * 29 % 400)
        .map(|j| (i * 17 + j * j * 3 + j / 7) as u8)
        .collect()
}

fn own_records() -> Records {
    (0..40).map(own_record).collect()
}

/// Reads with every reader and checks that they agree.
fn read(bytes: &[u8]) -> Records {
    let (streamed, result) = read_stream(bytes);
    result.unwrap();
    assert_eq!(read_slice(bytes).0, streamed);
    assert_eq!(read_strict(bytes).unwrap(), streamed);
    streamed
}

#[test]
fn our_own_vectors_are_read() {
    for name in [
        "cloud-none",
        "cloud-snappy",
        "cloud-gzip",
        "fluid-none",
        "fluid-snappy",
        "fluid-snappystream",
    ] {
        let bytes = own_vector(&format!("{name}.rio"));
        assert_eq!(read(&bytes), own_records(), "{name}");
        let layout = if name.starts_with("fluid") {
            Layout::Fluid
        } else {
            Layout::Cloud
        };
        assert_eq!(index_of(&bytes).layout(), layout, "{name}");
    }
}

/// Its payloads were compressed by `snappystream` 0.2.8 itself, the C++ library of the second layout's own library:
/// seven records in a stored block, then the other 33 and all 40 again, compressed.
#[test]
fn output_of_snappystream_is_read() {
    let bytes = own_vector("fluid-snappystream-cpp.rio");
    assert_eq!(read(&bytes), [own_records(), own_records()].concat());
    let index = index_of(&bytes);
    assert_eq!(index.layout(), Layout::Fluid);
    let stored = |n: usize| &bytes[index.chunks()[n].offset as usize + 20..];
    assert_eq!(
        (&stored(0)[..8], &stored(1)[..8]),
        (&b"snappy\0\0"[..], &b"snappy\0\x01"[..])
    );
}

#[test]
fn without_compression_we_write_the_same_bytes() {
    let ours = write(&own_records(), options(Compressor::None, 1000));
    assert_eq!(ours, own_vector("cloud-none.rio"));
}

#[test]
fn the_first_valid_chunk_settles_the_layout() {
    let (cloud, fluid) = (own_vector("cloud-none.rio"), own_vector("fluid-none.rio"));
    assert!(read_strict(&[&cloud[..], &fluid].concat()).is_err());
    assert!(read_strict(&[&fluid[..], &cloud].concat()).is_err());

    let first = index_of(&fluid).chunks()[0];
    for byte in 0..20 {
        let file = open(&flipped(&fluid, byte * 8 + 1), SKIP).unwrap();
        assert_eq!(file.index().layout(), Layout::Fluid, "header byte {byte}");
        let verified = file.verify().unwrap();
        assert_eq!(
            verified.records,
            40 - u64::from(first.header.records),
            "header byte {byte}"
        );
    }
}

#[test]
fn every_flipped_bit_of_a_fluid_file_is_noticed() {
    for name in ["fluid-none.rio", "fluid-snappy.rio", "fluid-snappystream-cpp.rio"] {
        let good = own_vector(name);
        for bit in (0..good.len() * 8).step_by(5) {
            assert!(read_stream(&flipped(&good, bit)).1.is_err(), "{name}: bit {bit}");
            assert!(read_strict(&flipped(&good, bit)).is_err(), "{name}: bit {bit}");
        }
    }
}

#[test]
fn an_empty_chunk_says_nothing_about_the_layout() {
    let mut empty_first = [0; 20];
    empty_first[..4].copy_from_slice(&[4, 3, 2, 1]);
    for (name, layout) in [
        ("cloud-snappy.rio", Layout::Cloud),
        ("fluid-snappy.rio", Layout::Fluid),
    ] {
        let bytes = [&empty_first[..], &own_vector(name)].concat();
        assert_eq!(read(&bytes), own_records());
        assert_eq!(open(&bytes, Policy::Strict).unwrap().index().layout(), layout);
    }
}

/// The folder of the original's vectors.
fn original_vectors() -> PathBuf {
    let folder = env::var_os("PADDLECLOUD_RECORDIO_VECTORS");
    folder
        .expect("PADDLECLOUD_RECORDIO_VECTORS names a folder")
        .into()
}

/// The rule in the README beside the original's vectors.
fn original_record(i: usize, len: usize) -> Vec<u8> {
    (0..len).map(|j| (i * 131 + j * j * 7 + j / 13) as u8).collect()
}

fn original_records(lens: &[usize]) -> Records {
    lens.iter()
        .enumerate()
        .map(|(i, len)| original_record(i, *len))
        .collect()
}

#[test]
#[ignore = "needs the original's RecordIO files"]
fn the_originals_vectors_are_read_and_written() {
    let folder = original_vectors();
    let vector = |name: &str| fs::read(folder.join(name)).unwrap();

    let lens: Vec<usize> = (0..200).map(|i| i * 37 % 900).collect();
    let multi = original_records(&lens);
    for name in ["multi-none.rio", "multi-snappy.rio", "multi-gzip.rio"] {
        assert_eq!(read(&vector(name)), multi, "{name}");
    }
    assert_eq!(
        write(&multi, options(Compressor::None, 4096)),
        vector("multi-none.rio")
    );

    let big = original_records(&[10, 5000, 20, 0, 999, 1, 1001]);
    assert_eq!(read(&vector("bigrecord.rio")), big);
    assert_eq!(
        write(&big, options(Compressor::None, 1000)),
        vector("bigrecord.rio")
    );

    assert_eq!(
        read(&vector("onechunk-each.rio")),
        original_records(&[0, 1, 10, 100])
    );
    let tiny = [&b"a"[..], b"", b"hello", &[0, 1, 2], &[b'x'; 1000]];
    assert_eq!(read(&vector("tiny.rio")), tiny);
    let blocks: Records = (0..64)
        .map(|i| (0..4096).map(|j| ((i * 31 + j) % 251) as u8).collect())
        .collect();
    assert_eq!(read(&vector("blocks.rio")), blocks);
    let pickles = read(&vector("pickle-00000"));
    assert_eq!(pickles.len(), 100);
    assert!(
        pickles
            .iter()
            .all(|pickle| pickle.starts_with(b"(I") && pickle.ends_with(b"."))
    );
    assert!(read(&vector("empty.rio")).is_empty());
}
