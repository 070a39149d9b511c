//! The only place that writes to stdout, and only data: tables, JSON, YAML, log bytes. On a terminal, text is escaped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal, Write};

use ::console::Term;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::error::CliError;
use crate::{controls, one_line};

/// Writes data.
pub struct Printer {
    sink: BufWriter<Box<dyn Write>>,
    pub is_terminal: bool,
    pub colour: bool,
    /// The width of the terminal; a table may have a column that shrinks to fit.
    columns: usize,
    /// Whether the cursor can be moved.
    can_redraw: bool,
    /// Rows and columns of the terminal, which may change.
    size: fn() -> Option<(u16, u16)>,
}

/// A terminal on which lines can be drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    pub rows: usize,
    pub columns: usize,
}

/// The width if the terminal does not say.
const USUAL_COLUMNS: usize = 80;

fn stdout_size() -> Option<(u16, u16)> {
    Term::stdout().size_checked()
}

/// Spaces between two columns on a terminal.
const GAP: usize = 2;

/// Output formats.
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
    /// For commands with a single layout.
    pub fn for_programs() -> impl TypedValueParser<Value = Format> {
        Format::among(&[Format::Json, Format::Yaml])
    }

    /// For commands that print names, or objects with a name, and have no wide layout.
    pub fn for_programs_or_names() -> impl TypedValueParser<Value = Format> {
        Format::among(&[Format::Json, Format::Yaml, Format::Name])
    }

    /// Refuses the other formats by name: a format that changes nothing would mislead.
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

/// `NO_COLOR` forbids colours, `CLICOLOR_FORCE` forces them, otherwise a terminal decides.
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
            columns: stdout_size().map_or(USUAL_COLUMNS, |(_, columns)| columns.into()),
            can_redraw: is_terminal && env.get("TERM").is_none_or(|term| term != "dumb"),
            size: stdout_size,
        }
    }

    /// Into a buffer, for tests.
    pub fn to(sink: Box<dyn Write>, is_terminal: bool) -> Printer {
        Printer {
            sink: BufWriter::new(sink),
            is_terminal,
            colour: is_terminal,
            columns: USUAL_COLUMNS,
            can_redraw: is_terminal,
            size: || None,
        }
    }

    /// The terminal, if this prints to one that can move the cursor.
    pub fn screen(&self) -> Option<Screen> {
        let (rows, columns) = (self.size)().unwrap_or((24, 80));
        self.can_redraw.then_some(Screen {
            rows: rows.into(),
            columns: columns.into(),
        })
    }

    /// The width of the terminal, if this prints to one.
    pub fn terminal_columns(&self) -> Option<usize> {
        self.is_terminal.then_some(self.columns)
    }

    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        let shown = self.shown(text.as_ref());
        self.bytes(shown.as_bytes())?;
        self.bytes(b"\n")
    }

    /// A line in a colour.
    pub fn painted(&mut self, paint: Paint, text: &str) -> Result<(), CliError> {
        let shown = paint.around(&self.shown(text));
        self.bytes(shown.as_bytes())?;
        self.bytes(b"\n")
    }

    /// The text as it may be printed.
    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.is_terminal {
            true => controls::escaped(text),
            false => Cow::Borrowed(text),
        }
    }

    /// The text as it may be printed in a table, where it must stay on its line.
    fn cell<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.is_terminal && text.contains(['\n', '\t']) {
            true => Cow::Owned(controls::escaped_line(text)),
            false => self.shown(text),
        }
    }

    /// Bytes that are not changed: contents of files, and logs, which [`crate::log_view`] filters.
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

    /// Writes JSON or YAML if requested; otherwise returns that the table is still to be written.
    pub fn structured(&mut self, format: Option<Format>, value: &impl Serialize) -> Result<bool, CliError> {
        match format {
            Some(Format::Json) => self.json(value).map(|()| true),
            Some(Format::Yaml) => self.yaml(value).map(|()| true),
            _ => Ok(false),
        }
    }

    /// The same for a list, which may also be requested as names.
    pub fn listed<T: Serialize>(
        &mut self,
        format: Option<Format>,
        items: &[T],
        name: impl Fn(&T) -> String,
    ) -> Result<bool, CliError> {
        if format != Some(Format::Name) {
            return self.structured(format, &items);
        }
        items.iter().try_for_each(|item| self.line(name(item)))?;
        Ok(true)
    }

    pub fn table(&mut self, table: &Table) -> Result<(), CliError> {
        let widths = self.widths(table);
        self.row(&table.header, table, &widths)?;
        self.rows(table, &widths)
    }

    /// The column widths: those of the widest cells, unless the terminal is too narrow.
    pub fn widths(&self, table: &Table) -> Vec<usize> {
        let mut widths = table.widths(|cell| one_line::width(&self.cell(cell)));
        if !self.is_terminal {
            return widths;
        }
        let whole = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
        if let (Some(last), Some(least)) = (widths.last_mut(), table.last_fills) {
            *last = least;
        }
        for &flexible in &table.flexible {
            let excess = whole(&widths).saturating_sub(self.columns);
            let narrowest = NARROWEST.min(widths[flexible]);
            widths[flexible] = widths[flexible].saturating_sub(excess).max(narrowest);
        }
        let left = self.columns.saturating_sub(whole(&widths));
        if let (Some(last), Some(_)) = (widths.last_mut(), table.last_fills) {
            *last += left;
        }
        widths
    }

    /// More rows of a table whose header was already printed.
    pub fn rows(&mut self, table: &Table, widths: &[usize]) -> Result<(), CliError> {
        let mut rows = table.rows.iter();
        rows.try_for_each(|row| self.row(row, table, widths))
    }

    fn row(&mut self, cells: &[String], table: &Table, widths: &[usize]) -> Result<(), CliError> {
        if !self.is_terminal && !table.is_for_people {
            return self.line(cells.join("\t"));
        }
        let mut line = String::new();
        for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let cell = self.cell(cell);
            let cell = match self.is_terminal && table.may_shorten(at) {
                true => one_line::shortened(&cell, *width),
                false => cell.into_owned(),
            };
            let pad = width.saturating_sub(one_line::width(&cell)) + GAP;
            let shown = match status_paint(&cell).filter(|_| self.colour) {
                Some(paint) => paint.around(&cell),
                None => cell,
            };
            line.push_str(&shown);
            line.extend(std::iter::repeat_n(' ', pad));
        }
        self.bytes(line.trim_end().as_bytes())?;
        self.bytes(b"\n")
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

/// Rows of text under a header.
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The columns that shrink on a narrow terminal, the first one first.
    flexible: Vec<usize>,
    /// The last column takes the rest of the line, and at least this width.
    last_fills: Option<usize>,
    /// Its columns are aligned in pipes too.
    is_for_people: bool,
}

/// The least width of a column that shrinks.
pub const NARROWEST: usize = 8;

impl Table {
    pub fn new(header: &[&str]) -> Table {
        Table {
            header: header.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
            flexible: Vec::new(),
            last_fills: None,
            is_for_people: false,
        }
    }

    /// Gives the last column what the others leave of a terminal's line; longer cells are shortened. If that is less than
    /// `least`, lines wrap.
    pub fn with_last_filling(mut self, least: usize) -> Table {
        self.last_fills = Some(least);
        self
    }

    /// Aligns the columns in pipes too: for output that only people read.
    pub fn for_people(mut self) -> Table {
        self.is_for_people = true;
        self
    }

    fn may_shorten(&self, column: usize) -> bool {
        self.flexible.contains(&column) || (self.last_fills.is_some() && column + 1 == self.header.len())
    }

    /// Lets the column with this header shrink on a narrow terminal, if those named before are as narrow as possible.
    pub fn with_flexible(mut self, head: &str) -> Table {
        self.flexible
            .extend(self.header.iter().position(|name| name == head));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a column in front, with a cell for each row.
    pub fn with_first(mut self, head: &str, cells: impl IntoIterator<Item = String>) -> Table {
        self.header.insert(0, head.to_owned());
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.insert(0, cell);
        }
        self.flexible.iter_mut().for_each(|column| *column += 1);
        self
    }

    /// Adds a row; tabs and newlines in a cell would break it apart and become spaces.
    pub fn push(&mut self, cells: Vec<String>) {
        let one_line = |cell: String| cell.replace(['\t', '\n', '\r'], " ");
        self.rows.push(cells.into_iter().map(one_line).collect());
    }

    fn widths(&self, width_of: impl Fn(&str) -> usize) -> Vec<usize> {
        let mut widths = vec![0; self.header.len()];
        for row in std::iter::once(&self.header).chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(width_of(cell));
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

    /// What a terminal of this width shows, or a pipe.
    fn printed(table: &Table, columns: Option<usize>) -> String {
        let sink = Sink::default();
        let mut printer = Printer {
            colour: false,
            columns: columns.unwrap_or(USUAL_COLUMNS),
            ..Printer::to(Box::new(sink.clone()), columns.is_some())
        };
        printer.table(table).unwrap();
        printer.flush().unwrap();
        String::from_utf8(sink.0.borrow().clone()).unwrap()
    }

    #[derive(Clone, Default)]
    struct Sink(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn jobs() -> Table {
        let mut table = Table::new(&["NAME", "AGE", "NOTE"])
            .with_flexible("NAME")
            .with_last_filling(NARROWEST);
        table.push(vec![
            "word-embedding".into(),
            "1s".into(),
            "trainer 1 failed: exit code 1".into(),
        ]);
        table
    }

    #[test]
    fn the_last_column_takes_the_rest_of_a_line() {
        let wide = "NAME            AGE  NOTE\nword-embedding  1s   trainer 1 failed: exit code 1\n";
        assert_eq!(printed(&jobs(), Some(60)), wide);
        insta::assert_snapshot!(printed(&jobs(), Some(40)), @r"
        NAME            AGE  NOTE
        word-embedding  1s   trainer 1…it code 1
        ");
        insta::assert_snapshot!(printed(&jobs(), Some(24)), @r"
        NAME       AGE  NOTE
        word…ding  1s   tra…de 1
        ");
        assert_eq!(
            printed(&jobs(), None),
            "NAME\tAGE\tNOTE\nword-embedding\t1s\ttrainer 1 failed: exit code 1\n"
        );
        assert_eq!(printed(&jobs().for_people(), None), wide);
    }
}
