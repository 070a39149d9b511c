//! The saved model: one file per parameter in `pass-%05d`, in PaddlePaddle's format of 2017.
//!
//! A file begins with two 32-bit numbers (format 0, bytes per value) and the 64-bit number of values; the values
//! follow. A table has two files: its rows in `<name>` and their ids in `<name>.ids`. `done` is written last and marks
//! a complete model. It lists the shapes of dense tensors; that of 2017 was empty.

pub mod shapes;

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::tensor_name::{DONE, IDS, file_name, name_of_file};
use crate::wire::{Reader, bytes_of, bytes_of_ids, bytes_of_ids_mut, bytes_of_mut};

use super::{Client, ClientError, KnownKind};

const HEADER: usize = 16;
/// How many values of a file are in memory at once when rows are loaded.
const PORTION: usize = 1 << 20;

/// Why a model cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("cannot write the model to `{}`: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read the model from `{}`: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is not a complete model: it has no file `done`", .0.display())]
    Incomplete(PathBuf),
    #[error("cannot load `{}`: this session has no tensors; declare them first", .0.display())]
    Undeclared(PathBuf),
    #[error("`{}` is not a parameter: {reason}", .path.display())]
    Format { path: PathBuf, reason: String },
}

fn header(width: u32, count: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[4..8].copy_from_slice(&width.to_le_bytes());
    bytes[8..].copy_from_slice(&count.to_le_bytes());
    bytes
}

impl Client {
    /// Writes all tensors this client knows. An existing model in the folder is incomplete while this runs.
    pub fn save(&mut self, folder: &Path) -> Result<(), ClientError> {
        let write = |path: &Path| {
            let path = path.to_owned();
            move |source| ModelError::Write { path, source }
        };
        fs::create_dir_all(folder).map_err(write(folder))?;
        let done = folder.join(DONE);
        match fs::remove_file(&done) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write(&done)(error).into()),
            _ => {}
        }
        let mut names: Vec<String> = self.tensors.keys().cloned().collect();
        names.sort();
        let mut shapes = Vec::new();
        for name in names {
            let path = folder.join(file_name(&name));
            match self.tensor(&name)?.kind.clone() {
                KnownKind::Dense(layout, spec) => {
                    shapes.push((name.clone(), spec.shape));
                    let mut values = vec![0.0; layout.elements as usize];
                    self.pull(&mut [(&name, &mut values)], true)?;
                    write_parameter(&path, &values).map_err(write(&path))?;
                }
                KnownKind::Table(_) => self.save_table(&name, &path)?,
            }
        }
        shapes::write(&done, &shapes).map_err(write(&done))?;
        Ok(())
    }

    fn save_table(&mut self, name: &str, path: &Path) -> Result<(), ClientError> {
        let write = |source| ModelError::Write {
            path: path.to_owned(),
            source,
        };
        let mut files = TableFiles::create(path).map_err(write)?;
        self.scan(name, 0, |ids, rows| {
            files
                .add(ids, rows)
                .map_err(|error| ClientError::from(write(error)))
        })?;
        files.finish().map_err(write)?;
        Ok(())
    }

    /// Loads the values of a saved model into all tensors this client knows.
    pub fn load(&mut self, folder: &Path) -> Result<(), ClientError> {
        if !folder.join(DONE).exists() {
            return Err(ModelError::Incomplete(folder.to_owned()).into());
        }
        if self.tensors.is_empty() {
            return Err(ModelError::Undeclared(folder.to_owned()).into());
        }
        let shapes = shapes::read(folder);
        let mut names: Vec<String> = self.tensors.keys().cloned().collect();
        names.sort();
        for name in names {
            let path = parameter_path(folder, &name);
            match &self.tensor(&name)?.kind {
                KnownKind::Dense(_, spec) => {
                    if let Some(saved) = shapes.get(&name).filter(|saved| **saved != spec.shape) {
                        let reason = format!("its shape is {saved:?}, that of `{name}` is {:?}", spec.shape);
                        return Err(ModelError::Format { path, reason }.into());
                    }
                    let values = read_parameter(&path)?;
                    self.assign(&name, &values, true)?;
                }
                KnownKind::Table(spec) => {
                    let row = spec.row as usize;
                    self.load_table(&name, row, &path)?;
                }
            }
        }
        Ok(())
    }

    fn load_table(&mut self, name: &str, row: usize, path: &Path) -> Result<(), ClientError> {
        let ids_path = ids_path(path);
        let (mut ids_file, count) = open(&ids_path, 8)?;
        let (mut rows_file, values) = open(path, 4)?;
        if values != count * row as u64 {
            let reason = format!("{count} rows of {row} values are not {values} values");
            return Err(ModelError::Format {
                path: path.to_owned(),
                reason,
            }
            .into());
        }
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(PORTION / row + 1);
            let (mut ids, mut rows) = (vec![0; now], vec![0.0; now * row]);
            read_into(&mut ids_file, bytes_of_ids_mut(&mut ids), &ids_path)?;
            read_into(&mut rows_file, bytes_of_mut(&mut rows), path)?;
            self.assign_rows(name, &ids, &rows)?;
            left -= now;
        }
        Ok(())
    }
}

/// The file of a parameter of a saved model. Files of 2017 are not escaped.
pub fn parameter_path(folder: &Path, name: &str) -> PathBuf {
    let plain = folder.join(name);
    let escaped = folder.join(file_name(name));
    let is_of_2017 = !escaped.exists() && plain.parent() == Some(folder) && plain.is_file();
    if is_of_2017 { plain } else { escaped }
}

/// Reads one parameter of a saved model.
pub fn read_parameter(path: &Path) -> Result<Vec<f32>, ModelError> {
    let (mut file, count) = open(path, 4)?;
    let mut values = vec![0.0; count as usize];
    read_into(&mut file, bytes_of_mut(&mut values), path)?;
    Ok(values)
}

/// Reads the ids and the rows of a table of a saved model.
pub fn read_table(path: &Path) -> Result<(Vec<u64>, Vec<f32>), ModelError> {
    let ids_path = ids_path(path);
    let (mut file, count) = open(&ids_path, 8)?;
    let mut ids = vec![0; count as usize];
    read_into(&mut file, bytes_of_ids_mut(&mut ids), &ids_path)?;
    let rows = read_parameter(path)?;
    if (ids.is_empty() && !rows.is_empty()) || (!ids.is_empty() && rows.len() % ids.len() != 0) {
        return Err(ModelError::Format {
            path: path.to_owned(),
            reason: format!(
                "{} values cannot be divided into rows of {} ids",
                rows.len(),
                ids.len()
            ),
        });
    }
    Ok((ids, rows))
}

/// Whether a parameter of a saved model is a table.
pub fn is_table(path: &Path) -> bool {
    ids_path(path).exists()
}

/// Writes a table of a saved model.
pub fn write_table(path: &Path, ids: &[u64], rows: &[f32]) -> Result<(), ModelError> {
    let write = || {
        let mut files = TableFiles::create(path)?;
        files.add(ids, rows)?;
        files.finish()
    };
    write().map_err(|source| ModelError::Write {
        path: path.to_owned(),
        source,
    })
}

/// The names of the parameters of a complete saved model.
pub fn parameters(folder: &Path) -> Result<Vec<String>, ModelError> {
    if !folder.join(DONE).exists() {
        return Err(ModelError::Incomplete(folder.to_owned()));
    }
    let read = |source| ModelError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(read)? {
        let name = entry.map_err(read)?.file_name();
        // Ids belong to their table.
        if let Some(file) = name.to_str()
            && let Some(name) = name_of_file(file)
            && !file
                .strip_suffix(IDS)
                .is_some_and(|rows| folder.join(rows).exists())
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Opens a file and checks its header against its size.
fn open(path: &Path, width: u32) -> Result<(File, u64), ModelError> {
    let read = |source| ModelError::Read {
        path: path.to_owned(),
        source,
    };
    let format = |reason: String| ModelError::Format {
        path: path.to_owned(),
        reason,
    };
    let mut file = File::open(path).map_err(read)?;
    let size = file.metadata().map_err(read)?.len();
    let mut bytes = [0; HEADER];
    file.read_exact(&mut bytes)
        .map_err(|_| format("it is shorter than its header".to_owned()))?;
    let mut header = Reader::new(&bytes);
    let fields = header.u32().and_then(|a| Ok((a, header.u32()?, header.u64()?)));
    let (version, found, count) = fields.map_err(|error| format(error.to_string()))?;
    if (version, found) != (0, width) {
        return Err(format(format!(
            "its header says format {version}, {found} bytes per value"
        )));
    }
    let expected = count
        .checked_mul(u64::from(width))
        .and_then(|bytes| bytes.checked_add(HEADER as u64));
    match expected == Some(size) {
        true => Ok((file, count)),
        false => Err(format(format!(
            "its header says {count} values, but it has {size} bytes"
        ))),
    }
}

fn read_into(file: &mut File, bytes: &mut [u8], path: &Path) -> Result<(), ModelError> {
    file.read_exact(bytes).map_err(|source| ModelError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Writes a temporary file and renames it.
pub fn write_parameter(path: &Path, values: &[f32]) -> io::Result<()> {
    let draft = draft(path);
    let mut file = File::create(&draft)?;
    file.write_all(&header(4, values.len() as u64))?;
    file.write_all(bytes_of(values))?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

fn draft(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

fn ids_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(IDS);
    path.with_file_name(name)
}

/// The two files of a table. Their length is known only at the end, and is then written into their headers.
struct TableFiles {
    path: PathBuf,
    ids: BufWriter<File>,
    rows: BufWriter<File>,
    count: u64,
    values: u64,
}

impl TableFiles {
    fn create(path: &Path) -> io::Result<TableFiles> {
        let open = |path: &Path| -> io::Result<BufWriter<File>> {
            let mut file = BufWriter::new(File::create(draft(path))?);
            file.write_all(&header(0, 0))?;
            Ok(file)
        };
        Ok(TableFiles {
            ids: open(&ids_path(path))?,
            rows: open(path)?,
            path: path.to_owned(),
            count: 0,
            values: 0,
        })
    }

    fn add(&mut self, ids: &[u64], rows: &[f32]) -> io::Result<()> {
        self.ids.write_all(bytes_of_ids(ids))?;
        self.rows.write_all(bytes_of(rows))?;
        self.count += ids.len() as u64;
        self.values += rows.len() as u64;
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        let close = |file: BufWriter<File>, path: &Path, width, count| {
            let mut file = file.into_inner()?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header(width, count))?;
            file.sync_all()?;
            fs::rename(draft(path), path)
        };
        close(self.ids, &ids_path(&self.path), 8, self.count)?;
        close(self.rows, &self.path, 4, self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_the_header_of_2017() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        write_parameter(&path, &[1.0, -2.5]).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes[..16], [0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.len(), 24);
        assert_eq!(read_parameter(&path).unwrap(), [1.0, -2.5]);
    }

    #[test]
    fn a_header_larger_than_its_file_allocates_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        fs::write(&path, header(4, u64::MAX / 4)).unwrap();
        let error = read_parameter(&path).unwrap_err().to_string();
        assert!(error.ends_with("values, but it has 16 bytes"), "{error}");
    }
}
