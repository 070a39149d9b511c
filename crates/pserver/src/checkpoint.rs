//! Checkpoints on disk: `step-%012d/server-<i>-of-<n>`, one file per server, written front to back.
//!
//! A file is a sequence of records, each with a checksum; the last one counts them. It is written under a temporary
//! name, synced and renamed. A checkpoint is intact if the files of all its servers are; a checkpoint of changed rows
//! also needs its base. `server::checkpoints` defines what records mean.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::wire::{Reader, WireError, Writer};

/// The last byte is the format.
const MAGIC: [u8; 8] = *b"PDLCKPT4";
/// Maximum bytes of a record's head and body.
const MAX_HEAD: u32 = 1 << 20;
const MAX_BODY: u64 = 1 << 32;
const END: u8 = 255;

/// Why a checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("cannot write the checkpoint `{}`: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read the checkpoint `{}`: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the checkpoint `{}` is damaged: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "the checkpoint `{}` has {age} format ({format}) than this version of PaddleCloud reads ({})",
        .path.display(), char::from(MAGIC[7])
    )]
    Format {
        path: PathBuf,
        age: &'static str,
        format: char,
    },
    #[error("there is no intact checkpoint in `{}`", .0.display())]
    None(PathBuf),
}

/// A checkpoint that is complete, judging by its file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    pub step: u64,
    pub servers: u32,
}

/// The path of one server's file.
pub fn file(folder: &Path, step: u64, server: u32, servers: u32) -> PathBuf {
    folder_of(folder, step).join(format!("server-{server}-of-{servers}"))
}

/// The folder of one checkpoint.
pub fn folder_of(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:012}"))
}

/// The steps of all checkpoints, complete or not. A folder that does not exist has none; one that cannot be read is an
/// error.
pub fn steps(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut steps = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let step = name.to_str().and_then(|name| name.strip_prefix("step-"));
        steps.extend(step.and_then(|step| step.parse::<u64>().ok()));
    }
    Ok(steps)
}

/// All checkpoints that have all their files, the latest first. Fails like [`steps`].
pub fn list(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for step in steps(folder)? {
        let servers = match servers_of(&folder_of(folder, step)) {
            // Another server removed it in the meantime, or it is not a checkpoint.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                None
            }
            servers => servers?,
        };
        if let Some(servers) = servers
            && is_complete(folder, step, servers)?
        {
            found.push(Found { step, servers });
        }
    }
    found.sort();
    found.reverse();
    Ok(found)
}

fn is_complete(folder: &Path, step: u64, servers: u32) -> io::Result<bool> {
    for server in 0..servers {
        if !file(folder, step, server, servers).try_exists()? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn servers_of(folder: &Path) -> io::Result<Option<u32>> {
    let mut most = None;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let parts = name.to_str().and_then(|name| name.strip_prefix("server-"));
        let servers = parts.and_then(|parts| parts.split_once("-of-")?.1.parse().ok());
        most = most.max(servers);
    }
    Ok(most)
}

/// Writes one server's file.
pub struct FileWriter {
    path: PathBuf,
    draft: PathBuf,
    file: BufWriter<File>,
    records: u64,
}

impl FileWriter {
    pub fn create(
        folder: &Path,
        step: u64,
        server: u32,
        servers: u32,
    ) -> Result<FileWriter, CheckpointError> {
        let path = file(folder, step, server, servers);
        let above = path.parent().expect("a checkpoint's file lies in its folder");
        let draft = above.join(format!(".server-{server}-of-{servers}"));
        let open = || {
            create_folder(above)?;
            let mut file = BufWriter::with_capacity(1 << 18, File::create(&draft)?);
            file.write_all(&MAGIC)?;
            Ok(file)
        };
        let file = open().map_err(|source| CheckpointError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(FileWriter {
            path,
            draft,
            file,
            records: 0,
        })
    }

    pub fn record(&mut self, kind: u8, head: &[u8], body: &[&[u8]]) -> Result<(), CheckpointError> {
        self.records += 1;
        write_record(&mut self.file, kind, head, body).map_err(|source| CheckpointError::Write {
            path: self.path.clone(),
            source,
        })
    }

    /// Makes the file durable and renames it to its final name.
    pub fn finish(mut self) -> Result<(), CheckpointError> {
        let count = self.records.to_le_bytes();
        let end = || -> io::Result<()> {
            write_record(&mut self.file, END, &count, &[])?;
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            fs::rename(&self.draft, &self.path)?;
            let above = self.path.parent().unwrap_or(Path::new("."));
            File::open(above)?.sync_all()
        };
        let mut end = end;
        end().map_err(|source| CheckpointError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

/// Nothing remains of a file that was not finished: the disk may be full.
impl Drop for FileWriter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.draft);
    }
}

/// Creates a folder and those above it, and makes their names durable.
fn create_folder(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let mut created = fs::create_dir(path);
    if above != path && matches!(&created, Err(error) if error.kind() == io::ErrorKind::NotFound) {
        create_folder(above)?;
        created = fs::create_dir(path);
    }
    match created {
        // Another server was faster, but its name may not be durable yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created?,
    }
    File::open(above)?.sync_all()
}

fn write_record(to: &mut impl Write, kind: u8, head: &[u8], body: &[&[u8]]) -> io::Result<()> {
    let length: u64 = body.iter().map(|bytes| bytes.len() as u64).sum();
    let start = Writer::new().u8(kind).u32(head.len() as u32).u64(length).finish();
    let mut sum = crc32fast::Hasher::new();
    for bytes in [&start[..], head].into_iter().chain(body.iter().copied()) {
        sum.update(bytes);
        to.write_all(bytes)?;
    }
    to.write_all(&sum.finalize().to_le_bytes())
}

/// A record with a correct checksum.
#[derive(Debug)]
pub struct Record {
    pub kind: u8,
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

/// Reads a file record by record. Only an intact file can be read to its end.
pub struct FileReader {
    path: PathBuf,
    file: BufReader<File>,
    /// Remaining bytes; no record is larger.
    left: u64,
    records: u64,
}

impl FileReader {
    pub fn open(path: &Path) -> Result<FileReader, CheckpointError> {
        let read = |source| CheckpointError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(read)?;
        let left = file.metadata().map_err(read)?.len();
        let mut reader = FileReader {
            path: path.to_owned(),
            file: BufReader::with_capacity(1 << 18, file),
            left,
            records: 0,
        };
        let mut magic = [0; 8];
        reader.fill(&mut magic)?;
        match magic {
            MAGIC => Ok(reader),
            [name @ .., format] if name == MAGIC[..7] && format.is_ascii_digit() => {
                Err(CheckpointError::Format {
                    path: path.to_owned(),
                    age: if format > MAGIC[7] { "a newer" } else { "an older" },
                    format: char::from(format),
                })
            }
            _ => Err(reader.damaged("it is not a checkpoint")),
        }
    }

    pub fn damaged(&self, reason: impl ToString) -> CheckpointError {
        CheckpointError::Damaged {
            path: self.path.clone(),
            reason: reason.to_string(),
        }
    }

    /// The next record; `None` at the end of an intact file.
    pub fn next(&mut self) -> Result<Option<Record>, CheckpointError> {
        let mut start = [0; 13];
        self.fill(&mut start)?;
        let mut fields = Reader::new(&start);
        let sizes = (|| Ok::<_, WireError>((fields.u8()?, fields.u32()?, fields.u64()?)))();
        let (kind, head, body) = sizes.map_err(|error| self.damaged(error))?;
        let fits = u64::from(head) + body.min(MAX_BODY) + 4 <= self.left;
        if head > MAX_HEAD || body > MAX_BODY || !fits {
            return Err(self.damaged("a record is larger than the file"));
        }
        let (mut head, mut body) = (vec![0; head as usize], vec![0; body as usize]);
        self.fill(&mut head)?;
        self.fill(&mut body)?;
        let mut sum = crc32fast::Hasher::new();
        for bytes in [&start[..], &head, &body] {
            sum.update(bytes);
        }
        let mut stored = [0; 4];
        self.fill(&mut stored)?;
        if sum.finalize() != u32::from_le_bytes(stored) {
            return Err(self.damaged("a checksum is wrong"));
        }
        if kind != END {
            self.records += 1;
            return Ok(Some(Record { kind, head, body }));
        }
        match head == self.records.to_le_bytes() && self.left == 0 {
            true => Ok(None),
            false => Err(self.damaged("records are missing")),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), CheckpointError> {
        if bytes.len() as u64 > self.left {
            return Err(self.damaged("it ends too early"));
        }
        self.left -= bytes.len() as u64;
        self.file
            .read_exact(bytes)
            .map_err(|source| CheckpointError::Read {
                path: self.path.clone(),
                source,
            })
    }
}

/// Reads a whole file to check that it is intact.
pub fn verify(path: &Path) -> Result<(), CheckpointError> {
    let mut reader = FileReader::open(path)?;
    while reader.next()?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, step: u64, server: u32, servers: u32) -> PathBuf {
        let mut writer = FileWriter::create(folder, step, server, servers).unwrap();
        writer.record(1, b"head", &[b"body ", b"in two"]).unwrap();
        writer.record(2, b"", &[]).unwrap();
        writer.finish().unwrap();
        file(folder, step, server, servers)
    }

    #[test]
    fn records_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader = FileReader::open(&write(folder.path(), 5, 0, 1)).unwrap();
        let first = reader.next().unwrap().unwrap();
        assert_eq!(
            (first.kind, &first.head[..], &first.body[..]),
            (1, &b"head"[..], &b"body in two"[..])
        );
        assert_eq!(reader.next().unwrap().unwrap().kind, 2);
        assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn nothing_remains_of_a_file_that_was_not_finished() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("not/yet/there");
        let mut writer = FileWriter::create(&above, 5, 0, 2).unwrap();
        writer.record(1, b"head", &[&[0; 1 << 20]]).unwrap();
        drop(writer);
        write(&above, 5, 1, 2);
        let files: Vec<_> = fs::read_dir(folder_of(&above, 5)).unwrap().collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].as_ref().unwrap().file_name(), "server-1-of-2");
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), 5, 0, 1);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(verify(&path).is_err(), "byte {at}");
            fs::write(&path, &bytes[..at]).unwrap();
            assert!(verify(&path).is_err(), "cut at {at}");
        }
        fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        assert!(verify(&path).is_err(), "longer");
    }

    #[test]
    fn only_checkpoints_of_all_servers_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 5, 0, 1);
        write(folder.path(), 10, 0, 2);
        write(folder.path(), 20, 0, 2);
        write(folder.path(), 20, 1, 2);
        let complete = [Found { step: 20, servers: 2 }, Found { step: 5, servers: 1 }];
        assert_eq!(list(folder.path()).unwrap(), complete);
        assert_eq!(list(&folder.path().join("absent")).unwrap(), []);
        fs::write(folder.path().join("step-30"), b"not a folder").unwrap();
        assert_eq!(list(folder.path()).unwrap(), complete);
        let unreadable = folder.path().join("step-30");
        assert!(list(&unreadable).is_err());
    }
}
