//! Splits files among the nodes of a job: `<out>/<i>/data`, with `<out>/output` beside them.
//!
//! Nothing is lost or duplicated: every line, row, record or file goes to exactly one node. Earlier output is replaced
//! only when the new output is complete; input files are only read.

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

/// The unit that a file is split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum By {
    /// Records of RecordIO, rows of CSV, lines of text, and everything else whole. A file must match its name.
    #[default]
    Auto,
    /// Files are dealt out whole, so that every node has about as many bytes.
    File,
    /// Line `n` goes to node `n` modulo the number of nodes.
    Line,
    /// Row `n` of a CSV file goes to node `n` modulo the number of nodes; the header goes to all.
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

/// An unknown unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a file cannot be split by `{0}` (use auto, file, line, row or record)")]
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
    /// A header, unless one of its cells is a number or two are the same.
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

/// A text that is not a number of nodes.
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

/// What to split, and where to.
#[derive(Debug, Clone)]
pub struct Request {
    /// Files, and folders whose files are meant. None: the files below `<out>/quick_start`.
    pub inputs: Vec<PathBuf>,
    pub out: PathBuf,
    pub parts: PartCount,
    pub by: By,
    pub first_row: FirstRow,
}

/// The result for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DividedFile {
    /// Its path below every `data` folder.
    pub name: PathBuf,
    pub source: PathBuf,
    /// File, line, row or record.
    pub by: By,
    /// How many units it has; a header is not counted.
    pub units: u64,
    /// Whether its first row was treated as a header, which every node gets.
    pub has_names: bool,
}

/// The result of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divided {
    pub files: Vec<DividedFile>,
    /// Bytes in every node's folder.
    pub part_bytes: Vec<u64>,
}

/// Progress of a split: bytes read, and bytes in total.
pub type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// Splits the files. Afterwards all of the new output exists, or all of the old.
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
