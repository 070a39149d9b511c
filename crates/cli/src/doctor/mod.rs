//! Reads a program from 2017 without running it: what to change for Python 3, and which of its names are not supported.
//!
//! Every change stays within its lines, so that a patch has the line numbers of the original.

mod diff;
mod edits;
mod lists;
mod names;
mod syntax;

pub use diff::unified;

use syntax::ParsedProgram;

/// What was found in one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The text with all changes applied.
    pub fixed: String,
    /// Lines that cannot be fixed automatically.
    pub problems: Vec<Problem>,
}

/// A line that a person must change.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
}

/// Examines one file; `None` if it is not Python.
pub fn examine(text: &str) -> Option<Findings> {
    let source = ParsedProgram::parse(text)?;
    let mut problems = names::unsupported(&source);
    problems.extend(source.errors());
    problems.sort();
    problems.dedup();
    Some(Findings {
        fixed: edits::apply(text, edits::of(&source)),
        problems,
    })
}

#[cfg(test)]
mod tests;
