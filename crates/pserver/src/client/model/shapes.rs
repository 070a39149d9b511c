//! The shapes of a saved model's dense tensors, in the file that marks it as complete: lines of a file name, a tab and the
//! lengths. Other programs only look whether that file exists.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::tensor_name::{DONE, file_name, name_of_file};

/// Marks a model as complete.
pub fn write(done: &Path, shapes: &[(String, Vec<u64>)]) -> io::Result<()> {
    let draft = super::draft(done);
    let mut file = File::create(&draft)?;
    for (name, shape) in shapes {
        let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
        writeln!(file, "{}\t{}", file_name(name), lengths.join(","))?;
    }
    file.sync_all()?;
    fs::rename(&draft, done)
}

/// The shapes by name. Models of 2017, and those that other tools wrote, have none.
pub fn read(folder: &Path) -> HashMap<String, Vec<u64>> {
    let text = fs::read_to_string(folder.join(DONE)).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<(String, Vec<u64>)> {
    let (file, lengths) = line.split_once('\t')?;
    let lengths = lengths.split(',').filter(|length| !length.is_empty());
    let shape = lengths.map(|length| length.parse().ok()).collect::<Option<_>>()?;
    Some((name_of_file(file)?, shape))
}
