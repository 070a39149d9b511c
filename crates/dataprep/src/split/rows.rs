//! Distributes the rows of a CSV file to the nodes; the header goes to every node.

use std::io::Write;

use super::FirstRow;
use super::cut::{Cut, Cutter, Group, Task};
use crate::csv_row::{Row, Rows};
use crate::error::DataError;
use crate::input::Input;

impl Cutter<'_> {
    /// Rows keep their bytes. Empty lines are not rows and are left out.
    pub(super) fn cut_rows(
        &self,
        task: &Task<'_>,
        group: &Group,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Cut, DataError> {
        let path = &task.item.path;
        let mut pieces = self.pieces(task, group)?;
        let input = Input::open(&path.into())?;
        let mut rows = Rows::new(input.reader);
        let mut cut = Cut {
            units: 0,
            has_names: false,
        };
        let mut is_first = true;
        while let Some(row) = rows.next_row().map_err(|e| e.of(path))? {
            if std::mem::take(&mut is_first) && is_names(&row, self.first_row()) {
                cut.has_names = true;
                for (piece, out) in &mut pieces {
                    out.write_all(row.raw).map_err(|e| DataError::write(piece, e))?;
                }
                continue;
            }
            if let Some(at) = group.place(cut.units) {
                let (piece, out) = &mut pieces[at];
                out.write_all(row.raw).map_err(|e| DataError::write(piece, e))?;
            }
            cut.units += 1;
            tell(input.position.get());
        }
        for (piece, out) in pieces {
            out.finish().map_err(|e| DataError::write(&piece, e))?;
        }
        Ok(cut)
    }
}

fn is_names(row: &Row<'_>, first_row: FirstRow) -> bool {
    match first_row {
        FirstRow::Names => true,
        FirstRow::Data => false,
        FirstRow::AsItLooks => {
            let mut cells: Vec<&[u8]> = row.cells().map(<[u8]>::trim_ascii).collect();
            let has_number = cells.iter().any(|cell| is_number(cell));
            let count = cells.len();
            cells.sort_unstable();
            cells.dedup();
            !has_number && cells.len() == count
        }
    }
}

/// Words that parse as a float, such as `inf`, count as names.
fn is_number(cell: &[u8]) -> bool {
    let text = std::str::from_utf8(cell).ok();
    cell.iter().any(u8::is_ascii_digit) && text.is_some_and(|text| text.parse::<f64>().is_ok())
}
