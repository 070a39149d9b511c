//! A patch in the unified format, for texts with the same number of lines.

use std::fmt::Write;
use std::ops::Range;

const CONTEXT: usize = 3;

/// The patch from `before` to `after`; empty where they are equal.
pub fn unified(name: &str, before: &str, after: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let changed: Vec<usize> = (0..old.len())
        .filter(|line| new.get(*line) != Some(&old[*line]))
        .collect();
    let mut text = String::new();
    for hunk in hunks(&changed, old.len()) {
        if text.is_empty() {
            text = format!("--- {name}\n+++ {name}\n");
        }
        let (start, count) = (hunk.start + 1, hunk.len());
        let _ = writeln!(text, "@@ -{start},{count} +{start},{count} @@");
        let mut at = hunk.start;
        while at < hunk.end {
            let end = (at..hunk.end).find(|line| (old[*line] != new[*line]) != (old[at] != new[at]));
            let run = at..end.unwrap_or(hunk.end);
            if old[at] == new[at] {
                lines(&mut text, ' ', &old[run.clone()]);
            } else {
                lines(&mut text, '-', &old[run.clone()]);
                lines(&mut text, '+', &new[run.clone()]);
            }
            at = run.end;
        }
    }
    text
}

fn lines(text: &mut String, mark: char, lines: &[&str]) {
    for line in lines {
        text.push(mark);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// Changed lines with their surroundings; near ones share a hunk.
fn hunks(changed: &[usize], count: usize) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for line in changed {
        let (start, end) = (line.saturating_sub(CONTEXT), (line + CONTEXT + 1).min(count));
        match found.last_mut() {
            Some(last) if start <= last.end => last.end = end,
            _ => found.push(start..end),
        }
    }
    found
}
