//! Prints records: unchanged, one per line, or as JSON for programs.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use paddlecloud_dataprep::{DataError, Seen};
use serde::Serialize;

use super::sources::{self, InputFile};
use super::{Reading, damage, failed};
use crate::commands::Context;
use crate::controls;
use crate::error::CliError;
use crate::printer::Printer;

/// How records are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// One record per line; bytes that are not text are escaped on a terminal.
    Lines,
    /// The bytes of the records, without separators.
    Raw,
    /// A JSON object per line: number, and text or base64.
    Json,
}

/// A record for programs.
#[derive(Serialize)]
struct RecordView<'a> {
    record: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Prints the records with these numbers.
pub fn print_all(
    files: &[PathBuf],
    reading: &Reading,
    range: Range<u64>,
    form: Form,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    for source in sources::gather(files, context)? {
        print(&source, reading, range.clone(), form, context)?;
    }
    Ok(())
}

fn print(
    source: &InputFile,
    reading: &Reading,
    range: Range<u64>,
    form: Form,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let data = reading.open(&source.origin)?;
    let out = &mut context.world.out;
    // An error of the printer is not an error of the data set: it is kept and takes precedence.
    let mut unprinted = None;
    let damage = data.each_in(range, &mut |seen| match print_one(&seen, form, out) {
        Ok(()) => Ok::<_, DataError>(ControlFlow::Continue(())),
        Err(error) => {
            unprinted = Some(error);
            Ok(ControlFlow::Break(()))
        }
    });
    if let Some(error) = unprinted {
        return Err(error);
    }
    let damage = damage.map_err(failed)?;
    damage::tell(&damage, source.named(), &mut context.world.err);
    Ok(())
}

fn print_one(seen: &Seen<'_>, form: Form, out: &mut Printer) -> Result<(), CliError> {
    match form {
        Form::Raw => out.bytes(seen.bytes),
        Form::Lines if out.is_terminal => out.line(shown(seen.bytes)),
        Form::Lines => {
            out.bytes(seen.bytes)?;
            out.bytes(b"\n")
        }
        Form::Json => {
            let text = std::str::from_utf8(seen.bytes).ok();
            let view = RecordView {
                record: seen.number,
                text,
                base64: text.is_none().then(|| STANDARD.encode(seen.bytes)),
            };
            out.line(serde_json::to_string(&view).expect("a record always becomes JSON"))
        }
    }
}

/// Text that a terminal can show safely.
fn shown(record: &[u8]) -> String {
    match std::str::from_utf8(record) {
        Ok(text) => controls::escaped(text).into_owned(),
        Err(_) => record.escape_ascii().to_string(),
    }
}

/// `10..20`, `10..`, `..20` or one number.
pub fn range(text: &str) -> Result<Range<u64>, String> {
    let number = |part: &str, default: u64| match part {
        "" => Ok(default),
        _ => part.parse::<u64>().map_err(|_| {
            format!("`{text}` is not a range of records: write `10..20`, `10..`, `..20` or one number")
        }),
    };
    match text.split_once("..") {
        Some((from, to)) => {
            let range = number(from, 0)?..number(to, u64::MAX)?;
            match range.is_empty() {
                true => Err(format!(
                    "`{text}` contains no record: its end must be greater than its start"
                )),
                false => Ok(range),
            }
        }
        None if text.is_empty() => Err("a range of records must not be empty".to_owned()),
        None => {
            let record = number(text, 0)?;
            Ok(record..record.saturating_add(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_written() {
        assert_eq!(range("10..20"), Ok(10..20));
        assert_eq!(range("10.."), Ok(10..u64::MAX));
        assert_eq!(range("..3"), Ok(0..3));
        assert_eq!(range("7"), Ok(7..8));
        for bad in ["", "a..b", "-1", "1..2..3", "5..2", "5..5", "..0"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_terminal_is_never_sent_control_bytes() {
        assert_eq!(shown("tür\tzu".as_bytes()), "tür\tzu");
        assert_eq!(shown(b"\x1b[31m"), "\\u001b[31m");
        assert_eq!(shown(b"\xff\x00"), "\\xff\\x00");
    }
}
