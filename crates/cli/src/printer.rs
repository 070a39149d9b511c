//! The only place that writes to stdout, and only data: tables, JSON, YAML, log bytes.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal, Write};

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::error::CliError;

/// The writer of data.
pub struct Printer {
    sink: BufWriter<Box<dyn Write>>,
    pub is_terminal: bool,
    pub colour: bool,
}

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// More columns.
    Wide,
    /// For programs.
    Json,
    /// The same as YAML.
    Yaml,
    /// Only names, one per line.
    Name,
}

impl Format {
    /// For commands whose one layout has nothing to add or to leave out.
    pub fn for_programs() -> impl TypedValueParser<Value = Format> {
        Format::among(&[Format::Json, Format::Yaml])
    }

    /// For commands that print names, or things that have one, and have no more columns.
    pub fn for_programs_or_names() -> impl TypedValueParser<Value = Format> {
        Format::among(&[Format::Json, Format::Yaml, Format::Name])
    }

    /// Refuses the others by name: a format that changes nothing would only be believed to.
    fn among(formats: &'static [Format]) -> impl TypedValueParser<Value = Format> {
        let names = formats.iter().filter_map(ValueEnum::to_possible_value);
        PossibleValuesParser::new(names).try_map(|name| <Format as ValueEnum>::from_str(&name, true))
    }
}

/// The few colours in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

impl Paint {
    /// One after another, so that neighbours differ.
    pub fn cycle(index: usize) -> Paint {
        const ORDER: [Paint; 5] = [
            Paint::Cyan,
            Paint::Green,
            Paint::Yellow,
            Paint::Magenta,
            Paint::Blue,
        ];
        ORDER[index % ORDER.len()]
    }

    pub fn around(self, text: &str) -> String {
        let code = match self {
            Paint::Red => 31,
            Paint::Green => 32,
            Paint::Yellow => 33,
            Paint::Blue => 34,
            Paint::Magenta => 35,
            Paint::Cyan => 36,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// `NO_COLOR` forbids, `CLICOLOR_FORCE` demands, else a terminal decides.
pub fn wants_colour(env: &BTreeMap<String, String>, is_terminal: bool) -> bool {
    let set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
    if set("NO_COLOR") {
        return false;
    }
    if env
        .get("CLICOLOR_FORCE")
        .is_some_and(|value| !value.is_empty() && value != "0")
    {
        return true;
    }
    is_terminal && env.get("TERM").is_none_or(|term| term != "dumb")
}

impl Printer {
    pub fn stdout(env: &BTreeMap<String, String>) -> Printer {
        let is_terminal = io::stdout().is_terminal();
        Printer {
            sink: BufWriter::with_capacity(64 << 10, Box::new(io::stdout())),
            is_terminal,
            colour: wants_colour(env, is_terminal),
        }
    }

    /// Into a buffer, for tests.
    pub fn to(sink: Box<dyn Write>, is_terminal: bool) -> Printer {
        Printer {
            sink: BufWriter::new(sink),
            is_terminal,
            colour: is_terminal,
        }
    }

    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.sink.write_all(bytes).map_err(CliError::Stdout)
    }

    pub fn flush(&mut self) -> Result<(), CliError> {
        self.sink.flush().map_err(CliError::Stdout)
    }

    pub fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value).expect("wire types always serialize");
        self.line(text)
    }

    pub fn yaml(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_saphyr::to_string(value).expect("wire types always serialize");
        self.line(text.trim_end())
    }

    /// Writes JSON or YAML when that was asked for; else says that the table is still to be written.
    pub fn structured(&mut self, format: Option<Format>, value: &impl Serialize) -> Result<bool, CliError> {
        match format {
            Some(Format::Json) => self.json(value).map(|()| true),
            Some(Format::Yaml) => self.yaml(value).map(|()| true),
            _ => Ok(false),
        }
    }

    pub fn table(&mut self, table: &Table) -> Result<(), CliError> {
        let widths = table.widths();
        self.row(&table.header, &widths)?;
        self.rows(table, &widths)
    }

    /// More rows of a table whose head stands already.
    pub fn rows(&mut self, table: &Table, widths: &[usize]) -> Result<(), CliError> {
        table.rows.iter().try_for_each(|row| self.row(row, widths))
    }

    fn row(&mut self, cells: &[String], widths: &[usize]) -> Result<(), CliError> {
        if !self.is_terminal {
            return self.line(cells.join("\t"));
        }
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let pad = width.saturating_sub(cell.chars().count()) + 3;
            let shown = match status_paint(cell).filter(|_| self.colour) {
                Some(paint) => paint.around(cell),
                None => cell.clone(),
            };
            line.push_str(&shown);
            line.extend(std::iter::repeat_n(' ', pad));
        }
        self.line(line.trim_end())
    }
}

fn status_paint(cell: &str) -> Option<Paint> {
    match cell {
        "Succeeded" => Some(Paint::Green),
        "Failed" | "Lost" => Some(Paint::Red),
        "Running" | "Ready" => Some(Paint::Cyan),
        "Pending" | "Starting" | "Stopping" | "Killed" => Some(Paint::Yellow),
        _ => None,
    }
}

/// Rows of text under a head.
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&str]) -> Table {
        Table {
            header: header.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; tabs and newlines in a cell would break it apart and become spaces.
    pub fn push(&mut self, cells: Vec<String>) {
        let one_line = |cell: String| cell.replace(['\t', '\n', '\r'], " ");
        self.rows.push(cells.into_iter().map(one_line).collect());
    }

    pub fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.header.len()];
        for row in std::iter::once(&self.header).chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_the_environment() {
        let env = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        assert!(wants_colour(&env(&[]), true));
        assert!(!wants_colour(&env(&[]), false));
        assert!(!wants_colour(
            &env(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]),
            true
        ));
        assert!(wants_colour(&env(&[("CLICOLOR_FORCE", "1")]), false));
        assert!(!wants_colour(&env(&[("TERM", "dumb")]), true));
        assert!(wants_colour(&env(&[("NO_COLOR", "")]), true));
    }
}
