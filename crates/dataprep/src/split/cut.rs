//! Writes the pieces of every file into the staged folders of the nodes.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::{
    Compressor, HEADER_LEN, Header, Limits, Policy, ReadOptions, StreamReader, WriteOptions, Writer,
};

use super::inputs::Item;
use super::{By, DividedFile, FirstRow, Progress, Request, promise};
use crate::error::DataError;
use crate::format::Format;
use crate::input::{self, Head, Input};
use crate::line::read_line;
use crate::packed::{PackedFile, Packing};

/// How many pieces are written at the same time; for more nodes a file is read again. Limits open files and memory.
const AT_ONCE: u32 = 64;

/// Deals out lines, rows and records in turn, continuing from file to file, so that nodes differ by one at most.
pub(super) struct Cutter<'a> {
    stage: &'a Path,
    request: &'a Request,
    parts: u32,
    /// The node whose turn it is.
    turn: u64,
    read: u64,
    /// Bytes of whole files that each node has.
    dealt: Vec<u64>,
}

/// A file and how it is split.
pub(super) struct Task<'a> {
    pub(super) item: &'a Item,
    by: By,
    packing: Packing,
}

impl<'a> Cutter<'a> {
    pub(super) fn new(stage: &'a Path, request: &'a Request) -> Self {
        let parts = request.parts.get();
        Self {
            stage,
            request,
            parts,
            turn: 0,
            read: 0,
            dealt: vec![0; parts as usize],
        }
    }

    pub(super) fn cut_all(
        &mut self,
        items: &[Item],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<DividedFile>, DataError> {
        let tasks = items
            .iter()
            .map(|item| Task::new(item, self.request.by))
            .collect::<Result<Vec<_>, _>>()?;
        let homes = self.deal(&tasks);
        let passes = u64::from(self.parts.div_ceil(AT_ONCE));
        let total = tasks.iter().map(|task| task.work(passes)).sum();
        let mut files = Vec::new();
        for (task, home) in tasks.iter().zip(homes) {
            let before = self.read;
            let mut tell = |read: u64| progress((before + read).min(total), total);
            let cut = match home {
                Some(part) => self.copy(task, part)?,
                None => self.cut(task, &mut tell)?,
            };
            self.read = before + task.work(passes);
            tell(task.work(passes));
            files.push(DividedFile {
                name: task.item.name.clone(),
                source: task.item.path.clone(),
                by: task.by,
                units: cut.units,
                has_names: cut.has_names,
            });
        }
        Ok(files)
    }

    /// The node of each whole file: the largest file first, each to the node with the least data.
    fn deal(&mut self, tasks: &[Task<'_>]) -> Vec<Option<u32>> {
        let mut homes = vec![None; tasks.len()];
        let mut whole: Vec<usize> = (0..tasks.len()).filter(|at| tasks[*at].by == By::File).collect();
        whole.sort_by_key(|at| std::cmp::Reverse(tasks[*at].item.stamp.len));
        let mut counts = vec![0_u64; self.parts as usize];
        for at in whole {
            let least = (0..self.parts as usize)
                .min_by_key(|part| (self.dealt[*part], counts[*part], *part))
                .expect("there is a node at least");
            self.dealt[least] += tasks[at].item.stamp.len;
            counts[least] += 1;
            homes[at] = Some(least as u32);
        }
        homes
    }

    pub(super) fn first_row(&self) -> FirstRow {
        self.request.first_row
    }

    fn copy(&self, task: &Task<'_>, part: u32) -> Result<Cut, DataError> {
        let (from, to) = (&task.item.path, self.piece(part, task));
        make_parent(&to)?;
        let mut source = File::open(from).map_err(|e| DataError::read(from, e))?;
        let mut target = File::create_new(&to).map_err(|e| DataError::write(&to, e))?;
        std::io::copy(&mut source, &mut target)
            .and_then(|_| target.sync_all())
            .map_err(|e| DataError::write(&to, e))?;
        Ok(Cut::without_names(1))
    }

    fn cut(&mut self, task: &Task<'_>, tell: &mut dyn FnMut(u64)) -> Result<Cut, DataError> {
        let mut cut = Cut::without_names(0);
        for (pass, first) in (0..self.parts).step_by(AT_ONCE as usize).enumerate() {
            let group = Group {
                first,
                end: self.parts.min(first + AT_ONCE),
                parts: self.parts,
                turn: self.turn,
            };
            let before = pass as u64 * task.item.stamp.len;
            let mut tell = |read: u64| tell(before + read);
            cut = match task.by {
                By::Record => Cut::without_names(self.cut_records(task, &group, &mut tell)?),
                By::Row => self.cut_rows(task, &group, &mut tell)?,
                _ => Cut::without_names(self.cut_lines(task, &group, &mut tell)?),
            };
        }
        self.turn = (self.turn + cut.units) % u64::from(self.parts);
        Ok(cut)
    }

    fn cut_lines(&self, task: &Task<'_>, group: &Group, tell: &mut dyn FnMut(u64)) -> Result<u64, DataError> {
        let path = &task.item.path;
        let mut pieces = self.pieces(task, group)?;
        let mut input = Input::open(&path.into())?;
        let (mut line, mut units) = (Vec::new(), 0);
        while read_line(&mut input.reader, &mut line).map_err(|e| DataError::read(path, e))? {
            if let Some(at) = group.place(units) {
                let (piece, out) = &mut pieces[at];
                out.write_all(&line).map_err(|e| DataError::write(piece, e))?;
            }
            units += 1;
            tell(input.position.get());
        }
        for (piece, out) in pieces {
            out.finish().map_err(|e| DataError::write(&piece, e))?;
        }
        Ok(units)
    }

    fn cut_records(
        &self,
        task: &Task<'_>,
        group: &Group,
        tell: &mut dyn FnMut(u64),
    ) -> Result<u64, DataError> {
        let path = &task.item.path;
        let options = WriteOptions::new().compressor(compressor_of(task)?);
        let mut writers = Vec::new();
        for (piece, out) in self.pieces(task, group)? {
            writers.push((Writer::named(out, &piece, options)?, piece));
        }
        let mut units = 0;
        let mut put = |record: &[u8]| -> Result<(), DataError> {
            if let Some(at) = group.place(units) {
                writers[at].0.write(record)?;
            }
            units += 1;
            Ok(())
        };
        if task.packing == Packing::Gzip {
            let input = Input::open(&path.into())?;
            let position = input.position;
            let mut reader = StreamReader::named(input.reader, path, Limits::default());
            while let Some(record) = reader.next_record()? {
                put(record)?;
                tell(position.get());
            }
        } else {
            let file = ReadOptions::new().policy(Policy::Strict).open(path)?;
            let mut reader = file.records();
            let mut read = 0;
            while let Some(chunk) = reader.next_chunk()? {
                chunk.iter().try_for_each(&mut put)?;
                read += chunk.payload().len() as u64;
                tell(read.min(task.item.stamp.len));
            }
        }
        for (writer, piece) in writers {
            let (out, _) = writer.finish()?;
            out.finish().map_err(|e| DataError::write(&piece, e))?;
        }
        Ok(units)
    }

    /// A piece for every node of the group, even if it stays empty: all nodes have the same names.
    pub(super) fn pieces(
        &self,
        task: &Task<'_>,
        group: &Group,
    ) -> Result<Vec<(PathBuf, PackedFile)>, DataError> {
        let open = |part| {
            let path = self.piece(part, task);
            make_parent(&path)?;
            let file = File::create_new(&path).map_err(|e| DataError::write(&path, e))?;
            Ok((path, PackedFile::new(file, task.packing)))
        };
        (group.first..group.end).map(open).collect()
    }

    fn piece(&self, part: u32, task: &Task<'_>) -> PathBuf {
        self.stage
            .join(part.to_string())
            .join("data")
            .join(&task.item.name)
    }
}

/// What was found in a file while it was split.
pub(super) struct Cut {
    pub(super) units: u64,
    /// Whether it has a header.
    pub(super) has_names: bool,
}

impl Cut {
    fn without_names(units: u64) -> Self {
        Self {
            units,
            has_names: false,
        }
    }
}

/// The nodes that are written in one pass over a file.
pub(super) struct Group {
    first: u32,
    end: u32,
    parts: u32,
    /// The node that gets the file's first unit.
    turn: u64,
}

impl Group {
    /// Which of the group's pieces gets unit `n`, if any.
    pub(super) fn place(&self, n: u64) -> Option<usize> {
        let part = ((self.turn + n) % u64::from(self.parts)) as u32;
        (self.first..self.end)
            .contains(&part)
            .then(|| (part - self.first) as usize)
    }
}

impl<'a> Task<'a> {
    fn new(item: &'a Item, by: By) -> Result<Self, DataError> {
        let head = input::head(&item.path.as_path().into())?;
        let packing = match head.is_gzip {
            true => Packing::Gzip,
            false => Packing::None,
        };
        let by = Self::unit(item, by, &head)?;
        Ok(Self { item, by, packing })
    }

    fn unit(item: &Item, by: By, head: &Head) -> Result<By, DataError> {
        let refuse = |problem: &str| Err(DataError::file(&item.path, problem));
        match by {
            By::File => Ok(By::File),
            By::Auto => promise::unit(&item.path, head),
            By::Line if head.is_recordio() => refuse("is RecordIO: it has records, not lines"),
            By::Line if !head.is_text() => refuse("is not text, so it has no lines; split it by file"),
            By::Row if head.is_recordio() => refuse("is RecordIO: it has records, not rows"),
            By::Row if !head.is_text() => refuse("is not text, so it has no rows; split it by file"),
            By::Record if is_table(item) => refuse("is CSV, not RecordIO: split it by row"),
            By::Record if !head.is_recordio() && !head.bytes.is_empty() => {
                refuse("is not RecordIO, so it has no records")
            }
            by => Ok(by),
        }
    }

    /// Bytes to read for it.
    fn work(&self, passes: u64) -> u64 {
        match self.by {
            By::File => self.item.stamp.len,
            _ => self.item.stamp.len * passes,
        }
    }
}

/// Only the name shows that a text is a table.
fn is_table(item: &Item) -> bool {
    Format::of_name(&item.path) == Some(Format::Csv)
}

/// Pieces are compressed like the file's first chunk.
fn compressor_of(task: &Task<'_>) -> Result<Compressor, DataError> {
    let head = input::head(&task.item.path.as_path().into())?;
    let Some(bytes) = head.bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(Compressor::default());
    };
    // An unreadable header is damage, which the reader describes better.
    Ok(Header::detect(bytes).map_or(Compressor::default(), |(header, _)| header.compressor))
}

fn make_parent(path: &Path) -> Result<(), DataError> {
    let folder = path.parent().expect("a piece lies in a folder");
    fs::create_dir_all(folder).map_err(|e| DataError::write(folder, e))
}
