//! `paddlectl pserver export` and `import`: convert saved models to the formats of other tools, and back.
//!
//! A saved model is a folder `pass-%05d` with one file per parameter. An export is the whole model or, with `--since`,
//! the changes: dense parameters that differ, and rows that are new or differ. Dropped rows are not listed.

mod numpy;
mod safetensors;
mod text;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use paddlecloud_pserver::client::{
    ModelError, is_table, parameter_path, parameters, read_parameter, read_table, shapes, write_parameter,
    write_table,
};
use paddlecloud_pserver::message::{check_name, file_name, name_of_file};

use crate::flags::{FlagError, nearest};

pub const HELP: &str = "\
Usage: paddlectl pserver export [--format numpy|safetensors|text] [--since MODEL] MODEL TO
       paddlectl pserver import [--format numpy|safetensors|text] [--onto MODEL] FROM MODEL

MODEL is a folder `pass-00000` that `save` wrote. TO and FROM are a file `NAME.safetensors`, or a folder with one `.npy` or `.txt` file per
parameter; without --format the name says which. A table has its ids beside its rows, as `NAME.ids`; in text each line is an id and its row.

  --since MODEL   export only what differs from this earlier save
  --onto MODEL    start from this save and replace what the import contains
";

/// Why a model was not converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("cannot read `{}`: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` cannot be imported: {reason}", .path.display())]
    Format { path: PathBuf, reason: String },
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error("{0}\n\n{HELP}")]
    Usage(String),
}

impl ConvertError {
    fn format(path: &Path, reason: impl ToString) -> ConvertError {
        ConvertError::Format {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

fn reading(path: &Path) -> impl FnOnce(io::Error) -> ConvertError {
    let path = path.to_owned();
    move |source| ConvertError::Read { path, source }
}

fn writing(path: &Path) -> impl FnOnce(io::Error) -> ConvertError {
    let path = path.to_owned();
    move |source| ConvertError::Write { path, source }
}

/// The shapes of dense parameters, where they are known.
type Shapes = HashMap<String, Vec<u64>>;

/// A parameter in memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    Dense(Vec<f32>),
    Table { ids: Vec<u64>, rows: Vec<f32> },
}

impl Parameter {
    fn read(model: &Path, name: &str) -> Result<Parameter, ConvertError> {
        let path = parameter_path(model, name);
        if !is_table(&path) {
            return Ok(Parameter::Dense(read_parameter(&path)?));
        }
        let (ids, rows) = read_table(&path)?;
        Ok(Parameter::Table { ids, rows })
    }

    fn write(&self, model: &Path, name: &str) -> Result<(), ConvertError> {
        let path = model.join(file_name(name));
        match self {
            Parameter::Dense(values) => write_parameter(&path, values).map_err(writing(&path)),
            Parameter::Table { ids, rows } => Ok(write_table(&path, ids, rows)?),
        }
    }

    /// The difference from an earlier state; `None` if there is none.
    fn since(self, before: &Parameter) -> Option<Parameter> {
        match (self, before) {
            (Parameter::Table { ids, rows }, Parameter::Table { ids: old, rows: were }) => {
                let (width, old_width) = (row_length(&ids, &rows), row_length(old, were));
                let places: HashMap<u64, usize> = old.iter().copied().zip(0..).collect();
                let mut changed = (Vec::new(), Vec::new());
                for (id, row) in ids.iter().zip(rows.chunks(width.max(1))) {
                    let before = places.get(id).map(|at| &were[at * old_width..][..old_width]);
                    if before != Some(row) {
                        changed.0.push(*id);
                        changed.1.extend_from_slice(row);
                    }
                }
                let (ids, rows) = changed;
                (!ids.is_empty()).then_some(Parameter::Table { ids, rows })
            }
            (now, before) => (now != *before).then_some(now),
        }
    }

    /// Applies the changes of an export to this state.
    fn with(self, changes: Parameter) -> Parameter {
        let (
            Parameter::Table { mut ids, mut rows },
            Parameter::Table {
                ids: changed,
                rows: to,
            },
        ) = (self, changes.clone())
        else {
            return changes;
        };
        let width = row_length(&changed, &to);
        let places: HashMap<u64, usize> = ids.iter().copied().zip(0..).collect();
        for (id, row) in changed.iter().zip(to.chunks(width.max(1))) {
            match places.get(id) {
                Some(at) => rows[at * width..][..width].copy_from_slice(row),
                None => {
                    ids.push(*id);
                    rows.extend_from_slice(row);
                }
            }
        }
        Parameter::Table { ids, rows }
    }
}

/// The shape of a dense parameter: as it was saved, or flat.
fn shape_of(name: &str, values: &[f32], shapes: &Shapes) -> Vec<usize> {
    let saved = shapes
        .get(name)
        .map(|shape| shape.iter().map(|length| *length as usize));
    let saved = saved.map(Iterator::collect::<Vec<_>>);
    saved
        .filter(|shape| shape.iter().product::<usize>() == values.len())
        .unwrap_or_else(|| vec![values.len()])
}

fn row_length(ids: &[u64], rows: &[f32]) -> usize {
    rows.len().checked_div(ids.len()).unwrap_or(0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Numpy,
    Safetensors,
    Text,
}

/// `[--format F] [--since|--onto MODEL] A B`
#[derive(Debug)]
struct Arguments {
    format: Option<Format>,
    other: Option<PathBuf>,
    from: PathBuf,
    to: PathBuf,
}

impl Arguments {
    fn parse(args: &[OsString], option: &str) -> Result<Arguments, ConvertError> {
        let usage = |message: String| ConvertError::Usage(message);
        let (mut format, mut other, mut places) = (None, None, Vec::new());
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                places.extend(words.map(PathBuf::from));
                break;
            }
            let text = word.to_string_lossy();
            let (flag, inline) = match text.split_once('=') {
                Some((flag, value)) if flag.starts_with('-') => {
                    (flag.to_owned(), Some(OsString::from(value)))
                }
                _ => (text.into_owned(), None),
            };
            if !flag.starts_with('-') {
                places.push(PathBuf::from(word));
                continue;
            }
            let flag = flag.trim_start_matches('-');
            if flag != "format" && flag != option {
                let near = nearest(flag, ["format", option].into_iter());
                return Err(FlagError::Unknown {
                    name: flag.to_owned(),
                    near,
                }
                .into());
            }
            let value = inline.or_else(|| words.next().cloned());
            let value = value.ok_or_else(|| usage(format!("`--{flag}` needs a value")))?;
            match flag {
                "format" => format = Some(format_named(&value.to_string_lossy())?),
                _ => other = Some(PathBuf::from(value)),
            }
        }
        match <[PathBuf; 2]>::try_from(places) {
            Ok([from, to]) => Ok(Arguments {
                format,
                other,
                from,
                to,
            }),
            Err(places) => Err(usage(format!("expected two paths, got {}", places.len()))),
        }
    }
}

fn format_named(name: &str) -> Result<Format, ConvertError> {
    match name {
        "numpy" => Ok(Format::Numpy),
        "safetensors" => Ok(Format::Safetensors),
        "text" => Ok(Format::Text),
        other => Err(ConvertError::Usage(format!(
            "`--format` must be numpy, safetensors or text, not `{other}`"
        ))),
    }
}

/// Runs `pserver export`; returns a message for the user.
pub fn export(args: &[OsString]) -> Result<String, ConvertError> {
    let args = Arguments::parse(args, "since")?;
    let format = match args.format {
        Some(format) => format,
        None if args.to.extension().is_some_and(|ext| ext == "safetensors") => Format::Safetensors,
        None => Format::Numpy,
    };
    let earlier = match &args.other {
        Some(model) => parameters(model)?,
        None => Vec::new(),
    };
    let mut exported = Vec::new();
    for name in parameters(&args.from)? {
        let now = Parameter::read(&args.from, &name)?;
        let changed = match (&args.other, earlier.contains(&name)) {
            (Some(model), true) => now.since(&Parameter::read(model, &name)?),
            _ => Some(now),
        };
        if let Some(changed) = changed {
            exported.push((name, changed));
        }
    }
    let shapes = shapes::read(&args.from);
    match format {
        Format::Numpy => numpy::write(&args.to, &exported, &shapes)?,
        Format::Safetensors => safetensors::write(&args.to, &exported, &shapes)?,
        Format::Text => text::write(&args.to, &exported)?,
    }
    Ok(format!(
        "exported {} parameters to {}",
        exported.len(),
        args.to.display()
    ))
}

/// Runs `pserver import`; returns a message for the user.
pub fn import(args: &[OsString]) -> Result<String, ConvertError> {
    let args = Arguments::parse(args, "onto")?;
    let format = match args.format {
        Some(format) => format,
        None if args.from.is_file() => Format::Safetensors,
        None => text::or_numpy(&args.from)?,
    };
    let imported = match format {
        Format::Numpy => numpy::read(&args.from)?,
        Format::Safetensors => safetensors::read(&args.from)?,
        Format::Text => text::read(&args.from)?,
    };
    for (name, _) in &imported {
        check_name(name).map_err(|reason| ConvertError::format(&args.from, reason))?;
    }
    let count = imported.len();
    let mut imported: HashMap<String, Parameter> = imported.into_iter().collect();
    fs::create_dir_all(&args.to).map_err(writing(&args.to))?;
    let done = args.to.join("done");
    if done.exists() {
        fs::remove_file(&done).map_err(writing(&done))?;
    }
    if let Some(model) = &args.other {
        for name in parameters(model)? {
            let before = Parameter::read(model, &name)?;
            let after = match imported.remove(&name) {
                Some(changes) => before.with(changes),
                None => before,
            };
            after.write(&args.to, &name)?;
        }
    }
    for (name, parameter) in &imported {
        parameter.write(&args.to, name)?;
    }
    fs::write(&done, "").map_err(writing(&done))?;
    Ok(format!("imported {count} parameters into {}", args.to.display()))
}

/// Builds dense parameters and tables from named arrays: `NAME` with `NAME.ids` is a table.
fn paired(
    mut floats: Vec<(String, Vec<f32>)>,
    ids: Vec<(String, Vec<u64>)>,
) -> Result<Vec<(String, Parameter)>, String> {
    let mut found = Vec::new();
    for (name, ids) in ids {
        let table = name.strip_suffix(".ids").unwrap_or(&name).to_owned();
        let at = floats.iter().position(|(name, _)| *name == table);
        let at = at.ok_or_else(|| format!("`{name}` has ids, but there are no rows `{table}`"))?;
        let (name, rows) = floats.swap_remove(at);
        if rows.len() % ids.len().max(1) != 0 || (ids.is_empty() && !rows.is_empty()) {
            return Err(format!(
                "{} values of `{name}` cannot be divided into rows of {} ids",
                rows.len(),
                ids.len()
            ));
        }
        found.push((name, Parameter::Table { ids, rows }));
    }
    let dense = floats
        .into_iter()
        .map(|(name, values)| (name, Parameter::Dense(values)));
    found.extend(dense);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// The files of a folder whose names have this ending, as (name without it, path), sorted.
fn files_ending(folder: &Path, ending: &str) -> Result<Vec<(String, PathBuf)>, ConvertError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(reading(folder))? {
        let entry = entry.map_err(reading(folder))?;
        if let Some(name) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_suffix(ending))
        {
            let name = name_of_file(name).unwrap_or_else(|| name.to_owned());
            files.push((name, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
