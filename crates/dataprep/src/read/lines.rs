//! Lines of text as records.

use super::{Dataset, Seen, Visit};
use crate::error::DataError;
use crate::input::Input;
use crate::line::{read_line, without_end};

pub(super) fn each(data: &Dataset, mut input: Input, visit: &mut Visit<'_>) -> Result<(), DataError> {
    let mut line = Vec::new();
    let mut number = 0;
    while read_line(&mut input.reader, &mut line).map_err(|e| DataError::read(&data.path, e))? {
        let seen = Seen {
            number,
            bytes: without_end(&line),
            position: input.position.get(),
        };
        if visit(seen)?.is_break() {
            return Ok(());
        }
        number += 1;
    }
    Ok(())
}
