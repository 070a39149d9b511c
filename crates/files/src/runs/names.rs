//! The `/pfs/…` names of what a job used and made. They change when a deleted user's home is given to another user.

use paddlecloud_core::job::Job;
use paddlecloud_pfs::{PfsPath, Space};

use super::folder_name;
use crate::homes::{Storage, ours};

impl Storage {
    /// The `/pfs/…` path of a run's own output.
    pub fn output_name(&self, job: &Job) -> Option<String> {
        let id = job.id.as_str();
        let output = match (&job.given_in, &job.spec.snapshot) {
            (None, _) => self.run_folders(job).ok()?.output,
            (Some(_), Some(_)) => ours(&["runs", id, &folder_name(job), "output"]),
            (Some(_), None) => ours(&["runs", id, "output"]),
        };
        Some(format!("{}/{output}", self.files_of(job)))
    }

    /// The `/pfs/…` path of the package as the job named it. That of a given job is where its home is now.
    pub fn package_name(&self, job: &Job) -> Option<String> {
        let package = job.spec.package.clone()?;
        let path = package.parse::<PfsPath>();
        match path.as_ref().map(PfsPath::place) {
            Ok(place) if job.given_in.is_some() && matches!(place.space, Space::Home(_)) => {
                Some(format!("{}/{}", self.files_of(job), place.path))
            }
            _ => Some(package),
        }
    }

    /// The `/pfs/…` path of the home in which the job ran.
    pub fn files_of(&self, job: &Job) -> String {
        let home = self.home_name(&job.user);
        match &job.given_in {
            Some(folder) => format!("{home}/{folder}"),
            None => home,
        }
    }
}
