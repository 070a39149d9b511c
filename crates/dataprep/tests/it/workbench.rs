//! A folder to convert files in.

use std::ops::ControlFlow;
use std::path::PathBuf;

use paddlecloud_dataprep::{Converted, DataError, Dataset, Format, ReadOptions, WriteOptions, convert};
use tempfile::TempDir;

pub struct Workbench {
    folder: TempDir,
}

impl Workbench {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).unwrap();
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub fn open(&self, name: &str) -> Dataset {
        Dataset::open(self.path(name), ReadOptions::default()).unwrap()
    }

    pub fn records(&self, name: &str) -> Vec<Vec<u8>> {
        records_of(&self.open(name)).unwrap()
    }

    /// Converts by the names alone.
    pub fn convert(&self, from: &str, to: &str) -> Result<Converted, DataError> {
        self.convert_with(from, to, None)
    }

    /// Converts by the names, with one field on the sides that have fields.
    pub fn convert_with(&self, from: &str, to: &str, field: Option<&str>) -> Result<Converted, DataError> {
        let from = self.path(from);
        let of_input = field.filter(|_| {
            Format::of_file(&from.as_path().into())
                .unwrap()
                .is_some_and(Format::has_fields)
        });
        let read = ReadOptions {
            field: of_input.map(str::to_owned),
            ..ReadOptions::default()
        };
        let write = WriteOptions {
            field: field.map(str::to_owned),
            ..WriteOptions::default()
        };
        let input = Dataset::open(from, read)?;
        convert(&input, &self.path(to), &write, &mut |_| {})
    }

    pub fn problem(&self, from: &str, to: &str) -> String {
        let error = self.convert(from, to).unwrap_err();
        error
            .to_string()
            .replace(self.folder.path().to_str().unwrap(), "")
    }
}

pub fn records_of(data: &Dataset) -> Result<Vec<Vec<u8>>, DataError> {
    let mut records = Vec::new();
    data.each(&mut |seen| {
        assert_eq!(seen.number, records.len() as u64);
        assert!(seen.position <= data.len());
        records.push(seen.bytes.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(records)
}
