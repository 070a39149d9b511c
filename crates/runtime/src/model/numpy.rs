//! The numpy format: one `.npy` file per array, with a dictionary as text, then the numbers.

use std::fs;
use std::path::Path;

use super::{
    ConvertError, Parameter, Shapes, file_name, files_ending, paired, reading, row_length, shape_of, writing,
};

const MAGIC: &[u8] = b"\x93NUMPY";

pub fn write(folder: &Path, parameters: &[(String, Parameter)], shapes: &Shapes) -> Result<(), ConvertError> {
    fs::create_dir_all(folder).map_err(writing(folder))?;
    let save = |name: String, kind: &str, shape: String, numbers: Vec<u8>| {
        let path = folder.join(name + ".npy");
        let mut bytes = header(kind, &shape);
        bytes.extend(numbers);
        fs::write(&path, bytes).map_err(writing(&path))
    };
    for (name, parameter) in parameters {
        match parameter {
            Parameter::Dense(values) => {
                let numbers = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let lengths = shape_of(name, values, shapes);
                let lengths: String = lengths.iter().map(|length| format!("{length},")).collect();
                save(file_name(name), "<f4", format!("({lengths})"), numbers)?;
            }
            Parameter::Table { ids, rows } => {
                let shape = format!("({}, {})", ids.len(), row_length(ids, rows));
                let numbers = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
                save(file_name(name), "<f4", shape, numbers)?;
                let numbers = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                save(
                    format!("{}.ids", file_name(name)),
                    "<u8",
                    format!("({},)", ids.len()),
                    numbers,
                )?;
            }
        }
    }
    Ok(())
}

/// Padded so that the numbers begin at a multiple of 64.
fn header(kind: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let used = MAGIC.len() + 4 + text.len() + 1;
    text.push_str(&" ".repeat(used.next_multiple_of(64) - used));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

pub fn read(folder: &Path) -> Result<Vec<(String, Parameter)>, ConvertError> {
    let (mut floats, mut ids) = (Vec::new(), Vec::new());
    for (name, path) in files_ending(folder, ".npy")? {
        let bytes = fs::read(&path).map_err(reading(&path))?;
        let (kind, numbers) = split(&bytes).map_err(|reason| ConvertError::format(&path, reason))?;
        match kind {
            "<f4" => floats.push((
                name,
                numbers
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b))
                    .collect(),
            )),
            "<f8" => {
                let values = numbers
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| f64::from_le_bytes(*b) as f32);
                floats.push((name, values.collect()));
            }
            "<u8" | "<i8" => ids.push((
                name,
                numbers
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| u64::from_le_bytes(*b))
                    .collect(),
            )),
            other => {
                let reason =
                    format!("its numbers are `{other}`; supported are float32, float64 and 64-bit ids");
                return Err(ConvertError::format(&path, reason));
            }
        }
    }
    paired(floats, ids).map_err(|reason| ConvertError::format(folder, reason))
}

/// The type of the numbers, and their bytes.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), &'static str> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is not a numpy file")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("it ends in its header")?;
    let (length, rest) = match version[0] {
        1 => {
            let (length, rest) = rest.split_first_chunk().ok_or("it ends in its header")?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        _ => {
            let (length, rest) = rest.split_first_chunk().ok_or("it ends in its header")?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
    };
    let (text, numbers) = rest.split_at_checked(length).ok_or("it ends in its header")?;
    let text = std::str::from_utf8(text).map_err(|_| "its header is not text")?;
    if text.contains("'fortran_order': True") {
        return Err("it is in Fortran order; save `numpy.ascontiguousarray(…)`");
    }
    let kind = text
        .split("'descr': '")
        .nth(1)
        .and_then(|rest| rest.split('\'').next());
    let kind = kind.ok_or("its header has no `descr`")?;
    let width = if kind.ends_with('4') { 4 } else { 8 };
    match numbers.len() % width {
        0 => Ok((kind, numbers)),
        _ => Err("it ends within a number"),
    }
}
