//! Lines of JSON as records; empty lines are not records.

use super::{Dataset, Seen, Visit};
use crate::error::DataError;
use crate::input::Input;
use crate::json_row;
use crate::line::{BYTE_ORDER_MARK, read_line};

pub(super) fn each(data: &Dataset, mut input: Input, visit: &mut Visit<'_>) -> Result<(), DataError> {
    let mut line = Vec::new();
    let (mut number, mut line_number) = (0, 0);
    while read_line(&mut input.reader, &mut line).map_err(|e| DataError::read(&data.path, e))? {
        line_number += 1;
        let text = match line_number {
            1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line),
            _ => &line,
        };
        let value = text.trim_ascii();
        if value.is_empty() {
            continue;
        }
        let at_line = |problem| DataError::line(&data.path, line_number, problem);
        let part;
        let bytes = match data.field() {
            Some(name) => {
                part = json_row::field(value, name).map_err(at_line)?;
                part.as_slice()
            }
            None => {
                json_row::check(text.trim_ascii_end()).map_err(at_line)?;
                value
            }
        };
        let seen = Seen {
            number,
            bytes,
            position: input.position.get(),
        };
        if visit(seen)?.is_break() {
            return Ok(());
        }
        number += 1;
    }
    Ok(())
}
