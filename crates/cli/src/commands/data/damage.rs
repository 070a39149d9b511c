//! How damage is shown: a list for programs, one sentence each for people.

use std::path::Path;

use paddlecloud_recordio::{DamageReport, LostRange, LostRecords};
use serde::Serialize;

use crate::messages::Messages;

/// A range of bytes that could not be read.
#[derive(Debug, Clone, Serialize)]
pub struct DamageView {
    offset: u64,
    end: u64,
    /// `None` if it cannot be known.
    lost_records: Option<u64>,
    fault: String,
}

impl DamageView {
    pub fn of(lost: &LostRange) -> Self {
        Self {
            offset: lost.bytes.start,
            end: lost.bytes.end,
            lost_records: match lost.records {
                LostRecords::Known(count) => Some(count),
                LostRecords::Unknown => None,
            },
            fault: lost.fault.to_string(),
        }
    }

    pub fn all(report: &DamageReport) -> Vec<Self> {
        report.ranges().iter().map(Self::of).collect()
    }

    /// Everything about it in one line.
    pub fn sentence(&self, file: &Path) -> String {
        let records = match self.lost_records {
            Some(count) => format!("records lost: {count}"),
            None => "records lost: unknown".to_owned(),
        };
        format!(
            "`{}` is damaged at offset {} ({} bytes, {records}): {}",
            file.display(),
            self.offset,
            self.end - self.offset,
            self.fault
        )
    }
}

/// Reports what was skipped, range by range.
pub fn tell(report: &DamageReport, file: &Path, messages: &mut Messages) {
    for view in DamageView::all(report) {
        messages.note(&view.sentence(file));
    }
}
