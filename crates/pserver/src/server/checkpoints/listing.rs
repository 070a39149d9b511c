//! Lists the checkpoints of a folder for people: what is in them, and whether they can be loaded. Changes nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::{CheckpointError, folder_of, steps};

use super::stored::{parts, verify};

/// Whether a checkpoint can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointState {
    Intact {
        servers: usize,
        trainers: usize,
    },
    /// Some server has not written its file, or not yet.
    Incomplete,
    /// Why it cannot be loaded.
    Damaged(String),
}

/// One checkpoint of a folder, intact or not.
#[derive(Debug)]
pub struct ListedCheckpoint {
    pub path: PathBuf,
    pub step: u64,
    /// Of its own files; a checkpoint of changed rows needs its base too.
    pub bytes: u64,
    pub state: CheckpointState,
}

/// The checkpoints in a folder, and in its folders of runs; the earliest of each run first.
pub fn list_checkpoints(folder: &Path) -> io::Result<Vec<ListedCheckpoint>> {
    let mut found = in_run(folder)?;
    let mut runs: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    runs.retain(|run| run.is_dir());
    runs.sort();
    for run in runs {
        found.extend(in_run(&run)?);
    }
    Ok(found)
}

fn in_run(folder: &Path) -> io::Result<Vec<ListedCheckpoint>> {
    let mut steps = steps(folder)?;
    steps.sort_unstable();
    steps.into_iter().map(|step| listed(folder, step)).collect()
}

fn listed(folder: &Path, step: u64) -> io::Result<ListedCheckpoint> {
    let path = folder_of(folder, step);
    let mut bytes = 0;
    for entry in fs::read_dir(&path)? {
        bytes += entry?.metadata()?.len();
    }
    let intact = || {
        let parts = parts(folder, step)?;
        verify(folder, step)?;
        Ok(CheckpointState::Intact {
            servers: parts.len(),
            trainers: parts[0].header.progress.len(),
        })
    };
    Ok(ListedCheckpoint {
        state: intact().unwrap_or_else(|error: CheckpointError| match error {
            CheckpointError::None(_) => CheckpointState::Incomplete,
            error => CheckpointState::Damaged(error.to_string()),
        }),
        path,
        step,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::super::header::Header;
    use super::super::kind;
    use super::*;
    use crate::checkpoint::{FileWriter, file};

    fn write(folder: &Path, step: u64, servers: u32) {
        for server in 0..servers {
            let mut file = FileWriter::create(folder, step, server, servers).unwrap();
            let header = Header {
                step,
                progress: vec![(step, None); 3],
                ..Header::start()
            };
            file.record(kind::HEADER, &header.encode(), &[]).unwrap();
            file.finish().unwrap();
        }
    }

    #[test]
    fn checkpoints_of_all_runs_are_listed_and_the_broken_ones_explained() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, 3, 1);
        write(&folder.join("j_2"), 20, 2);
        write(&folder.join("j_2"), 10, 2);
        fs::write(file(&folder.join("j_2"), 10, 1, 2), "PDLCKPT3 and no more").unwrap();
        write(&folder.join("j_1"), 7, 2);
        fs::remove_file(file(&folder.join("j_1"), 7, 0, 2)).unwrap();
        fs::create_dir(folder.join("other")).unwrap();
        let found = list_checkpoints(folder).unwrap();
        let shown: Vec<String> = found
            .iter()
            .map(|each| {
                let path = each.path.strip_prefix(folder).unwrap().display();
                let state = match &each.state {
                    CheckpointState::Intact { servers, trainers } => format!("{trainers}+{servers}"),
                    CheckpointState::Incomplete => "incomplete".to_owned(),
                    CheckpointState::Damaged(why) => why.clone(),
                };
                format!("{path}: {state}")
            })
            .collect();
        assert_eq!(shown[0], "step-000000000003: 3+1");
        assert_eq!(shown[1], "j_1/step-000000000007: incomplete");
        assert!(
            shown[2].starts_with("j_2/step-000000000010: the checkpoint"),
            "{}",
            shown[2]
        );
        assert_eq!(shown[3], "j_2/step-000000000020: 3+2");
        assert!(found.iter().all(|each| each.bytes > 0));
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(list_checkpoints(&folder.path().join("nowhere")).is_err());
        assert!(list_checkpoints(folder.path()).unwrap().is_empty());
    }
}
