//! The text format: one `.txt` file per parameter. A dense one has one number per line; a table has an id and its row.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::{ConvertError, Format, Parameter, file_name, files_ending, reading, row_length, writing};

/// The first line of a table, by which an empty one is recognized too.
const TABLE: &str = "# id row";

pub fn write(folder: &Path, parameters: &[(String, Parameter)]) -> Result<(), ConvertError> {
    fs::create_dir_all(folder).map_err(writing(folder))?;
    for (name, parameter) in parameters {
        let path = folder.join(format!("{}.txt", file_name(name)));
        let write = || {
            let mut file = BufWriter::new(fs::File::create(&path)?);
            match parameter {
                Parameter::Dense(values) => values.iter().try_for_each(|value| writeln!(file, "{value}"))?,
                Parameter::Table { ids, rows } => {
                    writeln!(file, "{TABLE}")?;
                    let width = row_length(ids, rows).max(1);
                    for (id, row) in ids.iter().zip(rows.chunks(width)) {
                        write!(file, "{id}")?;
                        row.iter().try_for_each(|value| write!(file, " {value}"))?;
                        writeln!(file)?;
                    }
                }
            }
            file.flush()
        };
        write().map_err(writing(&path))?;
    }
    Ok(())
}

pub fn read(folder: &Path) -> Result<Vec<(String, Parameter)>, ConvertError> {
    let mut found = Vec::new();
    for (name, path) in files_ending(folder, ".txt")? {
        let text = fs::read_to_string(&path).map_err(reading(&path))?;
        let parameter = match text.strip_prefix(TABLE) {
            Some(lines) => table(lines),
            None => dense(&text),
        };
        found.push((
            name,
            parameter.map_err(|reason| ConvertError::format(&path, reason))?,
        ));
    }
    Ok(found)
}

fn dense(text: &str) -> Result<Parameter, String> {
    let numbers = text.split_whitespace().map(number);
    Ok(Parameter::Dense(numbers.collect::<Result<_, _>>()?))
}

fn table(lines: &str) -> Result<Parameter, String> {
    let (mut ids, mut rows): (Vec<u64>, Vec<f32>) = Default::default();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let id = words.next().unwrap_or_default();
        ids.push(id.parse().map_err(|_| format!("`{id}` is not an id"))?);
        for word in words {
            rows.push(number(word)?);
        }
        if rows.len() % ids.len() != 0 {
            return Err(format!(
                "the row of id {id} has a different length from earlier rows"
            ));
        }
    }
    Ok(Parameter::Table { ids, rows })
}

fn number(word: &str) -> Result<f32, String> {
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

/// Which of the two formats a folder contains.
pub fn or_numpy(folder: &Path) -> Result<Format, ConvertError> {
    match files_ending(folder, ".npy")?.is_empty() && !files_ending(folder, ".txt")?.is_empty() {
        true => Ok(Format::Text),
        false => Ok(Format::Numpy),
    }
}
