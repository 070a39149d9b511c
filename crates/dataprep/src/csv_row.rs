//! Rows of CSV: each as its bytes in the file, and cell by cell.
//!
//! A row ends at a line end outside of quotes. Unclosed quotes, and text after a closing quote, leave no way to tell
//! where a row ends: they are errors. The reader checks how many cells a row has.

use std::io::{self, BufRead};
use std::path::Path;

use crate::error::DataError;
use crate::line::{BYTE_ORDER_MARK, MAX_LINE};

/// Reads a table row by row.
pub(crate) struct Rows<R> {
    input: R,
    raw: Vec<u8>,
    /// The cells of the row, one after the other and without their quotes.
    cells: Vec<u8>,
    /// Where each cell ends.
    ends: Vec<usize>,
    state: State,
    is_started: bool,
    /// The line in which the next row begins, from 1.
    line: u64,
    /// Line ends inside quotes of the current row.
    inner_lines: u64,
    /// The line of the last opening quote.
    quote_line: u64,
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    /// The line it begins in.
    pub(crate) line: u64,
    /// Its bytes with the line end, if it has one; the first row also has the byte order mark.
    pub(crate) raw: &'a [u8],
    cells: &'a [u8],
    ends: &'a [usize],
}

impl<'a> Row<'a> {
    pub(crate) fn cells(&self) -> impl Iterator<Item = &'a [u8]> {
        let (cells, ends) = (self.cells, self.ends);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends).map(move |(start, end)| &cells[start..*end])
    }
}

/// Why there is no next row.
#[derive(Debug)]
pub(crate) enum RowError {
    Io(io::Error),
    /// Follows "line 7 of `x`".
    Line {
        line: u64,
        problem: String,
    },
}

impl RowError {
    pub(crate) fn of(self, file: &Path) -> DataError {
        match self {
            Self::Io(source) => DataError::read(file, source),
            Self::Line { line, problem } => DataError::line(file, line, problem),
        }
    }
}

/// The position of the next byte in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    CellStart,
    Plain,
    Quoted,
    /// After a quote inside quotes: it closes them, or is a literal quote if another one follows.
    QuoteInQuotes,
    /// After a carriage return, which ends a row with or without a line feed.
    Return,
}

/// What a byte means for the row.
enum Step {
    Goes,
    /// The row ends with this byte.
    Ends,
    /// The row ended before this byte.
    Ended,
    /// It follows a closing quote, and is neither a comma nor a line end.
    Stray,
}

impl<R: BufRead> Rows<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            raw: Vec::new(),
            cells: Vec::new(),
            ends: Vec::new(),
            state: State::CellStart,
            is_started: false,
            line: 1,
            inner_lines: 0,
            quote_line: 1,
        }
    }

    /// The next row; `None` at the end. Empty lines are not rows.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'_>>, RowError> {
        self.raw.clear();
        if !self.is_started {
            self.is_started = true;
            self.take_mark().map_err(RowError::Io)?;
        }
        let mark_len = self.raw.len();
        let line = loop {
            let line = self.line;
            if !self.read_row()? {
                return Ok(None);
            }
            self.line += self.inner_lines + 1;
            if !self.raw[mark_len..]
                .iter()
                .all(|byte| matches!(byte, b'\r' | b'\n'))
            {
                break line;
            }
            self.raw.truncate(mark_len);
        };
        self.ends.push(self.cells.len());
        Ok(Some(Row {
            line,
            raw: &self.raw,
            cells: &self.cells,
            ends: &self.ends,
        }))
    }

    /// Some programs write a byte order mark before the first cell; it is not part of it.
    fn take_mark(&mut self) -> io::Result<()> {
        if self.input.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            self.input.consume(BYTE_ORDER_MARK.len());
            self.raw.extend_from_slice(BYTE_ORDER_MARK);
        }
        Ok(())
    }

    /// Reads to the end of a row; false if nothing is left.
    fn read_row(&mut self) -> Result<bool, RowError> {
        (self.state, self.inner_lines) = (State::CellStart, 0);
        self.cells.clear();
        self.ends.clear();
        let before = self.raw.len();
        loop {
            let bytes = self.input.fill_buf().map_err(RowError::Io)?;
            if bytes.is_empty() {
                return self.at_end_of_file(before);
            }
            let mut row = Parser {
                cells: &mut self.cells,
                ends: &mut self.ends,
                state: &mut self.state,
                line: self.line,
                inner_lines: &mut self.inner_lines,
                quote_line: &mut self.quote_line,
            };
            let (taken, has_ended) = row.take(bytes)?;
            self.raw.extend_from_slice(&bytes[..taken]);
            self.input.consume(taken);
            if has_ended {
                return Ok(true);
            }
            if self.raw.len() as u64 > MAX_LINE {
                return Err(self.too_long());
            }
        }
    }

    fn at_end_of_file(&self, before: usize) -> Result<bool, RowError> {
        match self.state {
            State::Quoted => Err(RowError::Line {
                line: self.quote_line,
                problem: format!(
                    "has a quote in column {} that is never closed",
                    self.ends.len() + 1
                ),
            }),
            _ => Ok(self.raw.len() > before),
        }
    }

    fn too_long(&self) -> RowError {
        let (line, what) = match self.state {
            State::Quoted => (self.quote_line, "has a quote that is not closed"),
            _ => (self.line, "begins a row that does not end"),
        };
        RowError::Line {
            line,
            problem: format!("{what} within {} MiB", MAX_LINE >> 20),
        }
    }
}

/// The current row, without the bytes it comes from.
struct Parser<'a> {
    cells: &'a mut Vec<u8>,
    ends: &'a mut Vec<usize>,
    state: &'a mut State,
    line: u64,
    inner_lines: &'a mut u64,
    quote_line: &'a mut u64,
}

impl Parser<'_> {
    /// How many of these bytes belong to the row, and whether it ends with them.
    fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), RowError> {
        for (at, byte) in bytes.iter().enumerate() {
            match self.step(*byte) {
                Step::Goes => {}
                Step::Ends => return Ok((at + 1, true)),
                Step::Ended => return Ok((at, true)),
                Step::Stray => {
                    let column = self.ends.len() + 1;
                    return Err(RowError::Line {
                        line: self.line + *self.inner_lines,
                        problem: format!("has text after the closing quote of column {column}"),
                    });
                }
            }
        }
        Ok((bytes.len(), false))
    }

    fn step(&mut self, byte: u8) -> Step {
        match (*self.state, byte) {
            (State::Return, b'\n') => return Step::Ends,
            (State::Return, _) => return Step::Ended,
            (State::Quoted, b'"') => *self.state = State::QuoteInQuotes,
            (State::Quoted, _) => {
                *self.inner_lines += u64::from(byte == b'\n');
                self.cells.push(byte);
            }
            (State::CellStart, b'"') => {
                *self.quote_line = self.line + *self.inner_lines;
                *self.state = State::Quoted;
            }
            (State::QuoteInQuotes, b'"') => {
                self.cells.push(byte);
                *self.state = State::Quoted;
            }
            (_, b',') => {
                self.ends.push(self.cells.len());
                *self.state = State::CellStart;
            }
            (_, b'\n') => return Step::Ends,
            (_, b'\r') => *self.state = State::Return,
            (State::QuoteInQuotes, _) => return Step::Stray,
            (State::CellStart | State::Plain, _) => {
                self.cells.push(byte);
                *self.state = State::Plain;
            }
        }
        Step::Goes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = (u64, Vec<u8>, Vec<Vec<u8>>);

    fn rows_of(table: &[u8], buffer: usize) -> Result<Vec<Read>, String> {
        let mut rows = Rows::new(io::BufReader::with_capacity(buffer, table));
        let mut all = Vec::new();
        loop {
            match rows.next_row() {
                Ok(None) => return Ok(all),
                Ok(Some(row)) => {
                    all.push((
                        row.line,
                        row.raw.to_vec(),
                        row.cells().map(<[u8]>::to_vec).collect(),
                    ));
                }
                Err(RowError::Line { line, problem }) => return Err(format!("{line}: {problem}")),
                Err(RowError::Io(error)) => panic!("{error}"),
            }
        }
    }

    /// Lines and cells, for any buffer size.
    fn read(table: &str) -> Result<Vec<(u64, String)>, String> {
        let whole = rows_of(table.as_bytes(), 1 << 10);
        for buffer in 3..8 {
            assert_eq!(rows_of(table.as_bytes(), buffer), whole, "{table:?}");
        }
        let shown = |(line, _, cells): Read| {
            let cells: Vec<_> = cells.iter().map(|cell| String::from_utf8_lossy(cell)).collect();
            (line, cells.join("|"))
        };
        Ok(whole?.into_iter().map(shown).collect())
    }

    fn row(line: u64, cells: &str) -> (u64, String) {
        (line, cells.to_owned())
    }

    #[test]
    fn quoted_line_ends_commas_and_quotes_belong_to_their_cell() {
        let table = "a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\n,5\" pipe\n\"\"\n";
        let expected = [
            row(1, "a|b"),
            row(2, "1|x, \"y\"\nz"),
            row(5, "|5\" pipe"),
            row(6, ""),
        ];
        assert_eq!(read(table).unwrap(), expected);
    }

    #[test]
    fn any_line_ending_is_accepted_and_the_last_may_be_missing() {
        for table in [
            "a,b\n1,2\n",
            "a,b\r\n1,2\r\n",
            "a,b\r1,2\r",
            "\u{feff}a,b\n1,2",
            "\n\na,b\n1,2",
        ] {
            let rows = read(table).unwrap();
            let cells: Vec<&str> = rows.iter().map(|(_, cells)| cells.as_str()).collect();
            assert_eq!(cells, ["a|b", "1|2"], "{table:?}");
        }
        assert_eq!(read("").unwrap(), []);
        assert_eq!(read("\u{feff}").unwrap(), []);
    }

    #[test]
    fn an_unclosed_quote_is_reported_with_its_line() {
        let problem = |table: &str| read(table).unwrap_err();
        assert_eq!(
            problem("a,b\n1,\"x\n2,3\n"),
            "2: has a quote in column 2 that is never closed"
        );
        assert_eq!(
            problem("\"x\ny\",\"z"),
            "2: has a quote in column 2 that is never closed"
        );
        assert_eq!(
            problem("a\n\"x\ny\"z\n"),
            "3: has text after the closing quote of column 1"
        );
    }

    proptest! {
        #[test]
        fn rows_joined_are_the_file_and_cells_are_what_was_written(
            table in prop::collection::vec(prop::collection::vec("[a\",\r\n é]{0,4}", 2..4), 0..6),
            buffer in 3_usize..64,
        ) {
            let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
            for row in &table {
                writer.write_record(row).unwrap();
            }
            let bytes = writer.into_inner().unwrap();
            let rows = rows_of(&bytes, buffer).unwrap();
            let joined: Vec<u8> = rows.iter().flat_map(|(_, raw, _)| raw.clone()).collect();
            prop_assert_eq!(joined, bytes);
            let cells: Vec<Vec<String>> = rows
                .into_iter()
                .map(|(_, _, cells)| cells.into_iter().map(|cell| String::from_utf8(cell).unwrap()).collect())
                .collect();
            prop_assert_eq!(cells, table);
        }
    }
}
