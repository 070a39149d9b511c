//! Samples of a WebDataset archive as records.

use std::cell::Cell;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::rc::Rc;

use tar::{Archive, Entry};

use super::{Care, Dataset, Seen, Visit};
use crate::error::DataError;
use crate::input::{Input, Position};
use crate::sample::Sample;

/// A larger file inside an archive cannot be a record.
const MAX_FILE: u64 = 2 << 30;

/// The size of a header, and the unit to which contents are padded.
const BLOCK: usize = 512;

pub(super) fn each(data: &Dataset, input: Input, care: Care, visit: &mut Visit<'_>) -> Result<(), DataError> {
    let mut samples = Samples {
        data,
        position: input.position,
        number: 0,
        record: Vec::new(),
    };
    let passed = Passed::default();
    let mut archive = Archive::new(Watched {
        inner: input.reader,
        passed: passed.clone(),
    });
    let mut current: Option<Sample> = None;
    for entry in archive.entries().map_err(|e| passed.failed(data, &e))? {
        let entry = entry.map_err(|e| passed.failed_at_header(data, &e))?;
        let member = match (member(data, entry, care, &passed)?, care) {
            (Ok(member), _) => member,
            (Err(_), Care::Review) => continue,
            (Err(refusal), Care::Records) => return Err(refusal),
        };
        let Some((key, extension, bytes)) = member else {
            continue;
        };
        if current.as_ref().is_some_and(|sample| sample.key != key)
            && let Some(sample) = current.take()
            && samples.show(&sample, visit)?.is_break()
        {
            return Ok(());
        }
        let sample = current.get_or_insert_with(|| Sample::new(&key));
        if let (Err(problem), Care::Records) = (sample.add(&extension, bytes), care) {
            return Err(DataError::file(&data.path, problem));
        }
    }
    if let Some(sample) = current
        && samples.show(&sample, visit)?.is_break()
    {
        return Ok(());
    }
    check_end(data, archive.into_inner(), &passed)
}

/// An archive ends with two empty blocks and nothing after them: only this shows that it is not truncated, and that no
/// second archive follows, which no reader would see.
fn check_end(data: &Dataset, mut rest: Watched, passed: &Passed) -> Result<(), DataError> {
    let at_end = |problem: &str| {
        let offset = passed.offset.get();
        Err(DataError::file(
            &data.path,
            format!("{problem} (offset {offset})"),
        ))
    };
    const CUT: &str = "ends without the two empty blocks that end an archive: it is truncated";
    if passed.has_ended.get() {
        return at_end(CUT);
    }
    let (mut block, mut empty_blocks) = ([0; BLOCK], 1);
    loop {
        let got = read_block(&mut rest, &mut block).map_err(|e| passed.failed(data, &e))?;
        match got {
            0 if empty_blocks < 2 => return at_end(CUT),
            0 => return Ok(()),
            _ if block[..got].iter().any(|byte| *byte != 0) => {
                return at_end("has data after the end of the archive, which is not read");
            }
            _ => empty_blocks += 1,
        }
    }
}

fn read_block(input: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match input.read(&mut block[filled..])? {
            0 => break,
            got => filled += got,
        }
    }
    Ok(filled)
}

/// How far an archive has been read.
#[derive(Clone, Default)]
struct Passed {
    offset: Rc<Cell<u64>>,
    has_ended: Rc<Cell<bool>>,
}

impl Passed {
    fn failed(&self, data: &Dataset, error: &io::Error) -> DataError {
        failed_at(self.offset.get(), data, error)
    }

    /// A malformed header begins one block before the position reached. An unreadable one has another kind of error, or
    /// the end before it.
    fn failed_at_header(&self, data: &Dataset, error: &io::Error) -> DataError {
        let was_read = error.kind() == io::ErrorKind::Other && !self.has_ended.get();
        match was_read {
            true => failed_at(self.offset.get().saturating_sub(BLOCK as u64), data, error),
            false => self.failed(data, error),
        }
    }
}

fn failed_at(offset: u64, data: &Dataset, error: &io::Error) -> DataError {
    let problem = format!("cannot be read as tar at offset {offset}: {error}");
    DataError::file(&data.path, problem)
}

struct Watched {
    inner: Box<dyn io::BufRead>,
    passed: Passed,
}

impl Read for Watched {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buf)?;
        self.passed.offset.set(self.passed.offset.get() + got as u64);
        self.passed.has_ended.set(got == 0 && !buf.is_empty());
        Ok(got)
    }
}

struct Samples<'a> {
    data: &'a Dataset,
    position: Position,
    number: u64,
    record: Vec<u8>,
}

impl Samples<'_> {
    fn show(&mut self, sample: &Sample, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, DataError> {
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

/// A file's key, extension and contents.
type Member = (String, String, Vec<u8>);

/// The next file of the archive; `None` for a folder. Inner error: why it is not part of a sample. Outer error: why it
/// cannot be read.
fn member(
    data: &Dataset,
    mut entry: Entry<'_, impl Read>,
    care: Care,
    passed: &Passed,
) -> Result<Result<Option<Member>, DataError>, DataError> {
    let kind = entry.header().entry_type();
    let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    let refuse = |problem: &str| DataError::file(&data.path, format!("contains `{name}`, {problem}"));
    let size = entry.size();
    let place = Sample::split_name(&name);
    let refusal = match place {
        _ if kind.is_dir() => return Ok(Ok(None)),
        _ if !kind.is_file() => Some("which is not a regular file"),
        _ if size > MAX_FILE => Some("which is too large for a record"),
        None => Some("whose name has no extension, so it belongs to no sample"),
        Some(_) => None,
    };
    let cut = || refuse(&format!("which is truncated at offset {}", passed.offset.get()));
    if let Some(refusal) = refusal {
        // Completeness is checked even for a file that is not a record.
        if care == Care::Review {
            let got = io::copy(&mut entry, &mut io::sink()).map_err(|e| passed.failed(data, &e))?;
            if got != size {
                return Err(cut());
            }
        }
        return Ok(Err(refuse(refusal)));
    }
    let (key, extension) = place.expect("a name without these was refused");
    let mut bytes = Vec::new();
    entry
        .read_to_end(&mut bytes)
        .map_err(|e| passed.failed(data, &e))?;
    match bytes.len() as u64 == size {
        true => Ok(Ok(Some((key.to_owned(), extension.to_owned(), bytes)))),
        false => Err(cut()),
    }
}
