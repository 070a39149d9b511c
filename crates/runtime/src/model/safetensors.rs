//! The safetensors format: the length of a header, the header as JSON, then all numbers.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{ConvertError, Parameter, Shapes, paired, reading, row_length, shape_of, writing};

/// One array of the file.
struct Array<'a> {
    name: String,
    kind: &'static str,
    shape: Vec<usize>,
    numbers: Numbers<'a>,
}

enum Numbers<'a> {
    Floats(&'a [f32]),
    Ids(&'a [u64]),
}

impl Numbers<'_> {
    fn bytes(&self) -> usize {
        match self {
            Numbers::Floats(values) => size_of_val(*values),
            Numbers::Ids(ids) => size_of_val(*ids),
        }
    }
}

fn arrays<'a>(parameters: &'a [(String, Parameter)], shapes: &Shapes) -> Vec<Array<'a>> {
    let mut arrays = Vec::new();
    for (name, parameter) in parameters {
        let (values, shape) = match parameter {
            Parameter::Dense(values) => (values, shape_of(name, values, shapes)),
            Parameter::Table { ids, rows } => {
                arrays.push(Array {
                    name: format!("{name}.ids"),
                    kind: "U64",
                    shape: vec![ids.len()],
                    numbers: Numbers::Ids(ids),
                });
                (rows, vec![ids.len(), row_length(ids, rows)])
            }
        };
        arrays.push(Array {
            name: name.clone(),
            kind: "F32",
            shape,
            numbers: Numbers::Floats(values),
        });
    }
    // Wide numbers first, so that all are aligned.
    arrays.sort_by_key(|array| matches!(array.numbers, Numbers::Floats(_)));
    arrays
}

pub fn write(path: &Path, parameters: &[(String, Parameter)], shapes: &Shapes) -> Result<(), ConvertError> {
    let arrays = arrays(parameters, shapes);
    let mut header = Map::new();
    let mut end = 0;
    for array in &arrays {
        let start = end;
        end += array.numbers.bytes();
        let entry = json!({"dtype": array.kind, "shape": array.shape, "data_offsets": [start, end]});
        if header.insert(array.name.clone(), entry).is_some() {
            let reason = format!("two parameters would be `{}`", array.name);
            return Err(writing(path)(io::Error::other(reason)));
        }
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let write = || {
        let mut file = BufWriter::new(fs::File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        for array in &arrays {
            match array.numbers {
                Numbers::Floats(values) => {
                    values.iter().try_for_each(|v| file.write_all(&v.to_le_bytes()))?
                }
                Numbers::Ids(ids) => ids.iter().try_for_each(|id| file.write_all(&id.to_le_bytes()))?,
            }
        }
        file.flush()
    };
    write().map_err(writing(path))
}

pub fn read(path: &Path) -> Result<Vec<(String, Parameter)>, ConvertError> {
    let bytes = fs::read(path).map_err(reading(path))?;
    parse(&bytes).map_err(|reason| ConvertError::format(path, reason))
}

fn parse(bytes: &[u8]) -> Result<Vec<(String, Parameter)>, String> {
    let short = || "it ends in its header".to_owned();
    let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
    let (header, numbers) = rest.split_at_checked(length).ok_or_else(short)?;
    let header: Map<String, Value> = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let (mut floats, mut ids) = (Vec::new(), Vec::new());
    for (name, entry) in header {
        if name == "__metadata__" {
            continue;
        }
        let bytes =
            portion(&entry, numbers).ok_or_else(|| format!("`{name}` is beyond the end of the file"))?;
        match entry["dtype"].as_str().unwrap_or_default() {
            "F32" => floats.push((
                name,
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b))
                    .collect(),
            )),
            "BF16" => {
                let wide = |b: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
                floats.push((name, bytes.as_chunks().0.iter().map(wide).collect()));
            }
            "U64" | "I64" => ids.push((
                name,
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| u64::from_le_bytes(*b))
                    .collect(),
            )),
            other => {
                return Err(format!(
                    "`{name}` has numbers of type {other}; supported are F32, BF16 and 64-bit ids"
                ));
            }
        }
    }
    paired(floats, ids)
}

fn portion<'a>(entry: &Value, numbers: &'a [u8]) -> Option<&'a [u8]> {
    let at = |index: usize| usize::try_from(entry["data_offsets"][index].as_u64()?).ok();
    numbers.get(at(0)?..at(1)?)
}
