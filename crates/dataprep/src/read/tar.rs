//! Samples of a WebDataset archive as records.

use std::io::Read;

use tar::{Archive, Entry};

use super::{Dataset, Seen, Visit};
use crate::error::DataError;
use crate::input::{Input, Position};
use crate::sample::Sample;

/// A file inside an archive that is larger than this makes no record.
const MAX_FILE: u64 = 2 << 30;

pub(super) fn each(data: &Dataset, input: Input, visit: &mut Visit<'_>) -> Result<(), DataError> {
    let mut samples = Samples {
        data,
        position: input.position,
        number: 0,
        record: Vec::new(),
    };
    let mut archive = Archive::new(input.reader);
    let mut current: Option<Sample> = None;
    let entries = archive.entries().map_err(|e| DataError::read(&data.path, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| DataError::read(&data.path, e))?;
        let Some((key, extension, bytes)) = member(data, entry)? else {
            continue;
        };
        if current.as_ref().is_some_and(|sample| sample.key != key)
            && let Some(sample) = current.take()
            && samples.show(&sample, visit)?.is_break()
        {
            return Ok(());
        }
        let sample = current.get_or_insert_with(|| Sample::new(&key));
        sample
            .add(&extension, bytes)
            .map_err(|problem| DataError::file(&data.path, problem))?;
    }
    match current {
        Some(sample) => samples.show(&sample, visit).map(drop),
        None => Ok(()),
    }
}

struct Samples<'a> {
    data: &'a Dataset,
    position: Position,
    number: u64,
    record: Vec<u8>,
}

impl Samples<'_> {
    fn show(
        &mut self,
        sample: &Sample,
        visit: &mut Visit<'_>,
    ) -> Result<std::ops::ControlFlow<()>, DataError> {
        let bytes = match self.data.field() {
            Some(extension) => sample.file(extension).ok_or_else(|| {
                let problem = format!("(`{}`) has no file `{extension}`", sample.key);
                DataError::record(&self.data.path, self.number, problem)
            })?,
            None => {
                sample.to_record(&mut self.record);
                &self.record
            }
        };
        let seen = Seen {
            number: self.number,
            bytes,
            position: self.position.get(),
        };
        self.number += 1;
        visit(seen)
    }
}

/// Key, extension and contents of a file in the archive; nothing for a folder.
fn member(
    data: &Dataset,
    mut entry: Entry<'_, impl Read>,
) -> Result<Option<(String, String, Vec<u8>)>, DataError> {
    let kind = entry.header().entry_type();
    if kind.is_dir() {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    let refuse = |problem: &str| DataError::file(&data.path, format!("holds `{name}`, {problem}"));
    if !kind.is_file() {
        return Err(refuse("which is no regular file"));
    }
    let size = entry.size();
    if size > MAX_FILE {
        return Err(refuse("which is too large for a record"));
    }
    let (key, extension) = Sample::split_name(&name)
        .ok_or_else(|| refuse("whose name has no extension, so it belongs to no sample"))?;
    let mut bytes = Vec::new();
    entry
        .read_to_end(&mut bytes)
        .map_err(|e| DataError::read(&data.path, e))?;
    if bytes.len() as u64 != size {
        return Err(refuse("which is cut off"));
    }
    Ok(Some((key.to_owned(), extension.to_owned(), bytes)))
}
