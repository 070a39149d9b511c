//! The table of figures, and the statistics behind them.

use std::fs;
use std::time::Duration;

/// One figure of ours, with the target and the machine's load.
pub struct Row {
    what: String,
    measured: String,
    to_reach: &'static str,
}

impl Row {
    pub fn new(what: impl Into<String>, measured: impl Into<String>, to_reach: &'static str) -> Row {
        Row {
            what: what.into(),
            measured: measured.into(),
            to_reach,
        }
    }

    pub fn print(&self) {
        line(&self.what, &self.measured, self.to_reach, &load());
    }
}

pub fn print_head() {
    line("what", "measured", "to reach", "load");
}

fn line(what: &str, measured: &str, to_reach: &str, load: &str) {
    println!("{what:<48} {measured:<60} {to_reach:<26} {load}");
}

/// The machine's load average of the last minute.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// The one in the middle.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that this share of all values does not exceed.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let index = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(index.saturating_sub(1).min(last))
        .copied()
        .unwrap_or(f64::NAN)
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
