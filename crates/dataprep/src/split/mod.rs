//! Divides files among the nodes of a job: `<out>/<i>/data`, with `<out>/output` beside them.
//!
//! Nothing is lost and nothing doubled: every line, row, record or file goes to exactly one node. What was there
//! before is replaced only when all of the new is written; the files that are divided are only read.

mod cut;
mod foreign;
mod inputs;
mod note;
mod promise;
mod rows;
mod tree;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use foreign::PROBLEM as FOREIGN;
pub use inputs::DATA_SET;
pub use note::{LOCK_FOLDER, Names};
pub use tree::{MANIFEST, Manifest as Note};

use crate::error::DataError;
use cut::Cutter;
use tree::Tree;

/// What stays together when a file is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum By {
    /// Records of RecordIO, rows of CSV, lines of text, and everything else whole. A file must be what its name says.
    #[default]
    Auto,
    /// Files are dealt out whole, so that every node has about as many bytes.
    File,
    /// Line `n` goes to node `n` modulo the number of nodes.
    Line,
    /// Row `n` of a CSV file goes to node `n` modulo the number of nodes; the names of the columns go to all.
    Row,
    /// Record `n` goes to node `n` modulo the number of nodes.
    Record,
}

impl By {
    pub const ALL: [Self; 5] = [Self::Auto, Self::File, Self::Line, Self::Row, Self::Record];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::File => "file",
            Self::Line => "line",
            Self::Row => "row",
            Self::Record => "record",
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that says nothing about how to divide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a file cannot be divided by `{0}` (there are auto, file, line, row and record)")]
pub struct UnknownBy(String);

impl FromStr for By {
    type Err = UnknownBy;

    fn from_str(name: &str) -> Result<Self, UnknownBy> {
        Self::ALL
            .into_iter()
            .find(|by| by.name() == name)
            .ok_or_else(|| UnknownBy(name.to_owned()))
    }
}

/// What the first row of a CSV file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FirstRow {
    /// Names of columns, unless one of its cells is a number or two are the same.
    #[default]
    AsItLooks,
    Names,
    Data,
}

/// How many nodes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartCount(u32);

impl PartCount {
    pub const MAX: u32 = 10_000;

    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A text that is no number of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of nodes: write a whole number from 1 to {max}", max = PartCount::MAX)]
pub struct BadPartCount(String);

impl FromStr for PartCount {
    type Err = BadPartCount;

    fn from_str(text: &str) -> Result<Self, BadPartCount> {
        let number = text.trim().parse().ok();
        let allowed = number.filter(|count| (1..=Self::MAX).contains(count));
        allowed.map(Self).ok_or_else(|| BadPartCount(text.to_owned()))
    }
}

/// What to divide, and where to.
#[derive(Debug, Clone)]
pub struct Request {
    /// Files, and folders whose files are meant. None: the files below `<out>/quick_start`.
    pub inputs: Vec<PathBuf>,
    pub out: PathBuf,
    pub parts: PartCount,
    pub by: By,
    pub first_row: FirstRow,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DividedFile {
    /// Its path below every `data` folder.
    pub name: PathBuf,
    pub source: PathBuf,
    /// File, line, row or record.
    pub by: By,
    /// How many of those it has; a row of names is not counted.
    pub units: u64,
    /// Whether its first row was taken for names, which every node has.
    pub has_names: bool,
}

/// What a division did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divided {
    pub files: Vec<DividedFile>,
    /// Bytes in every node's folder.
    pub part_bytes: Vec<u64>,
}

/// What a division tells while it works: bytes read, and bytes there are.
pub type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// Divides the files. Afterwards all of it is there, or all that was there before.
pub fn run(request: &Request, progress: &mut Progress<'_>) -> Result<Divided, DataError> {
    let items = inputs::find(request)?;
    let tree = Tree::open(&request.out, request.parts)?;
    let mut cutter = Cutter::new(tree.stage(), request);
    let files = cutter.cut_all(&items, progress)?;
    for item in &items {
        item.stamp.check(&item.path)?;
    }
    let part_bytes = tree.publish(&files)?;
    Ok(Divided { files, part_bytes })
}

#[cfg(test)]
mod tests;
