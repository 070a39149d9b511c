//! A file's name appears when the file is complete.

use std::fs;
use std::path::Path;

use paddlecloud_recordio::{Compressor, FileWriter, IndexFile, RecordFile, WriteOptions, index_path};

use crate::samples::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_name_appears_at_the_end_and_nothing_else_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let mut writer = FileWriter::create(&path, options(Compressor::None, 10)).unwrap();
    records(20)
        .iter()
        .for_each(|record| writer.write(record).unwrap());
    assert!(!path.exists());
    let written = writer.finish().unwrap();
    assert_eq!(names(folder.path()), ["data"]);
    assert_eq!(written.bytes, fs::metadata(&path).unwrap().len());
    assert_eq!(RecordFile::open(&path).unwrap().len(), 20);
}

#[test]
fn an_abandoned_writer_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::write(&path, b"old").unwrap();
    let mut writer = FileWriter::create(&path, WriteOptions::new()).unwrap();
    writer.write(b"new").unwrap();
    drop(writer);
    assert_eq!(names(folder.path()), ["data"]);
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[test]
fn a_new_file_does_not_keep_the_old_ones_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    for index in [IndexFile::Stored, IndexFile::None] {
        let mut writer = FileWriter::create_with_index(&path, WriteOptions::new(), index).unwrap();
        writer.write(b"a record").unwrap();
        writer.finish().unwrap();
        assert_eq!(index_path(&path).exists(), index == IndexFile::Stored);
    }
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let error = FileWriter::create("/nonexistent/data", WriteOptions::new())
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.to_string(), "cannot write `/nonexistent/data`");
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().unwrap();
    let (socket, link, inner) = (
        folder.path().join("socket"),
        folder.path().join("link"),
        folder.path().join("folder"),
    );
    let _listener = UnixListener::bind(&socket).unwrap();
    symlink(&socket, &link).unwrap();
    fs::create_dir(&inner).unwrap();
    for path in [&socket, &link, &inner] {
        let error = FileWriter::create(path, WriteOptions::new())
            .map(drop)
            .unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
    }
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!(names(folder.path()), ["folder", "link", "socket"]);
}
