//! What the files of this machine say about a job before it is stored: its package, and the programs that it starts.
//!
//! One trip to a thread that may block finds all of it, and opens the user's home once.

use std::sync::Arc;

use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_pfs::{RelPath, Root};

use super::packages::{check_package, check_uploaded};
use super::programs::FoundPrograms;
use super::{App, AppError};
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_files::homes::{Home, PackageLocation};
use paddlecloud_files::runs::run_at;

/// Whether the job is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Submit,
    /// Nothing is uploaded, so an upload that it names need not exist.
    DryRun,
}

impl Purpose {
    pub(super) fn of_dry_run(dry_run: bool) -> Purpose {
        match dry_run {
            true => Purpose::DryRun,
            false => Purpose::Submit,
        }
    }
}

/// What was found.
pub(super) struct Look {
    /// The package if the user may run it, and otherwise why not.
    pub package: Result<FoundPackage, AppError>,
    /// The programs that will run, or which one is missing.
    pub programs: Result<FoundPrograms, AppError>,
}

/// What a user's home says about a package.
#[derive(Default)]
pub(super) struct FoundPackage {
    /// The user's own entry where the package would appear. It stays, and the job is accepted anyway.
    pub in_the_way: Option<RelPath>,
}

impl App {
    /// Looks at a job's files. A path to an uploaded package's latest run becomes that package, as it was uploaded.
    pub(super) async fn look_at_files(
        self: &Arc<Self>,
        user: &UserName,
        spec: JobSpec,
        purpose: Purpose,
    ) -> Result<(JobSpec, Look), AppError> {
        let (mut spec, look, ended) = self.look(user, spec, purpose).await?;
        let Some(run) = ended else {
            return Ok((spec, look));
        };
        // Only the store knows the package of a run that has ended.
        let job = self.store.get(&run).await?;
        spec.snapshot = job.and_then(|job| job.spec.snapshot.clone());
        let (spec, look, _) = self.look(user, spec, purpose).await?;
        Ok((spec, look))
    }

    async fn look(
        self: &Arc<Self>,
        user: &UserName,
        mut spec: JobSpec,
        purpose: Purpose,
    ) -> Result<(JobSpec, Look, Option<JobId>), AppError> {
        let (app, user) = (Arc::clone(self), user.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let programs = app.programs_look_up(&spec);
            let (package, ended) = match app.package_resolve(&user, &mut spec) {
                Ok((home, ended)) => (app.package_look(&user, &spec, home, purpose), ended),
                Err(error) => (Err(error), None),
            };
            (spec, Look { package, programs }, ended)
        });
        looked.await.map_err(|_| AppError::Internal)
    }

    /// Replaces a path to an uploaded package's latest run by that package. Returns the home, if it was opened for that, and the
    /// run if it has ended.
    fn package_resolve(
        &self,
        user: &UserName,
        spec: &mut JobSpec,
    ) -> Result<(Option<Home>, Option<JobId>), AppError> {
        let (None, Some(path)) = (&spec.snapshot, &spec.package) else {
            return Ok((None, None));
        };
        let PackageLocation::Home(below) = self.storage.place(user, path)? else {
            return Ok((None, None));
        };
        let home = self.storage.home(user)?;
        let Some(run) = run_at(&home, &below) else {
            return Ok((Some(home), None));
        };
        let Some(job) = self.jobs.get(&run) else {
            return Ok((Some(home), Some(run)));
        };
        spec.snapshot.clone_from(&job.spec.snapshot);
        Ok((Some(home), None))
    }

    fn package_look(
        &self,
        user: &UserName,
        spec: &JobSpec,
        home: Option<Home>,
        purpose: Purpose,
    ) -> Result<FoundPackage, AppError> {
        let (Some(snapshot), Some(package)) = (&spec.snapshot, &spec.package) else {
            drop(home);
            check_package(&self.storage, user, spec)?;
            return Ok(FoundPackage::default());
        };
        if purpose == Purpose::DryRun {
            return Ok(FoundPackage::default());
        }
        let home = match home {
            Some(home) => home,
            None => self.storage.home(user)?,
        };
        check_uploaded(&self.storage, &home, user, (snapshot, package))?;
        Ok(FoundPackage {
            in_the_way: self.in_the_way(&home, user, spec),
        })
    }

    fn in_the_way(&self, home: &Root, user: &UserName, spec: &JobSpec) -> Option<RelPath> {
        let found = self.storage.in_the_way(home, user, spec);
        let found =
            found.inspect_err(|error| tracing::warn!(error = chain_of(error), "a home cannot be looked at"));
        found.ok().flatten()
    }
}
