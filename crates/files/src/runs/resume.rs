//! The checkpoints of an ended run, for a job that continues its training.
//!
//! Only the default place is known here. A program may keep them anywhere else, where the parameter servers look.

use paddlecloud_core::job::Job;
use paddlecloud_core::names::UserName;
use paddlecloud_core::resumed::ResumedRun;
use paddlecloud_pfs::{RelPath, Root};

use super::links::bad_name;
use crate::homes::{Storage, StorageError};

/// The default place of checkpoints in a run's output: `checkpoints/<run>`.
const CHECKPOINTS: &[u8] = b"checkpoints";

/// What a run's output contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCheckpoints {
    /// The output was removed.
    NoOutput,
    /// Nothing is at the default place: the run wrote no checkpoints, or elsewhere.
    NoFolder,
    /// At the default place there are none of this run.
    None,
    /// Only the parameter servers know whether they can be loaded.
    Some,
}

impl Storage {
    /// A run as a job refers to it that continues its training.
    pub fn resumed_run(&self, job: &Job) -> Option<ResumedRun> {
        let output = self.output_name(job)?;
        let home = self.home_name(&job.user);
        Some(ResumedRun {
            id: job.id.clone(),
            output: output.strip_prefix(&home)?.strip_prefix('/')?.to_owned(),
        })
    }

    pub fn checkpoints_of(&self, user: &UserName, run: &ResumedRun) -> Result<RunCheckpoints, StorageError> {
        let home = self.home(user)?;
        let wrong = |_| StorageError::BadName(run.output.clone());
        let output: RelPath = run.output.parse().map_err(wrong)?;
        if !is_folder(&home, &output)? {
            return Ok(RunCheckpoints::NoOutput);
        }
        let place = output.child(CHECKPOINTS).map_err(bad_name)?;
        if !is_folder(&home, &place)? {
            return Ok(RunCheckpoints::NoFolder);
        }
        let own = place.child(run.id.as_str().as_bytes()).map_err(bad_name)?;
        Ok(match is_folder(&home, &own)? && !home.list(&own)?.is_empty() {
            true => RunCheckpoints::Some,
            false => RunCheckpoints::None,
        })
    }
}

fn is_folder(home: &Root, path: &RelPath) -> Result<bool, StorageError> {
    match home.stat(path) {
        Ok(meta) => Ok(meta.is_dir()),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::homes::testing::TestHome;

    #[test]
    fn what_a_run_left_is_known_as_far_as_it_can_be_seen() {
        let home = TestHome::new();
        let run = ResumedRun {
            id: "j_00000000000001".parse().unwrap(),
            output: ".paddlecloud/runs/j_00000000000001/pkg/output".into(),
        };
        let found = || home.storage.checkpoints_of(&home.user, &run).unwrap();
        let output = home.ours.join("runs/j_00000000000001/pkg/output");
        assert_eq!(found(), RunCheckpoints::NoOutput);
        fs::create_dir_all(output.join("node_0")).unwrap();
        assert_eq!(found(), RunCheckpoints::NoFolder);
        fs::create_dir_all(output.join("checkpoints/j_00000000000002")).unwrap();
        assert_eq!(found(), RunCheckpoints::None);
        let own = output.join("checkpoints/j_00000000000001");
        fs::create_dir(&own).unwrap();
        assert_eq!(found(), RunCheckpoints::None);
        fs::write(own.join("step"), "1").unwrap();
        assert_eq!(found(), RunCheckpoints::Some);
        fs::remove_dir_all(&output).unwrap();
        fs::write(&output, "a file").unwrap();
        assert_eq!(found(), RunCheckpoints::NoOutput);
    }
}
