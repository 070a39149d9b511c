//! The folder of a run. `submit` promises:
//!
//! 1. the package's own path points to the latest run's output;
//! 2. no run overwrites another's output, not even when both run at the same time;
//! 3. a running job keeps the files it was submitted with (an uploaded package; a package used in place is the user's
//!    responsibility).
//!
//! One level of links fulfils the first two: `<package>` or `<package>/output` points to `.paddlecloud/latest/<key>`,
//! which points to a run. A worker sees its own folder at `.paddlecloud/latest`.

mod in_place;
mod links;
mod names;
mod prepare;
mod pruning;
mod resume;

use std::sync::PoisonError;

use paddlecloud_core::job::Job;
use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_core::spec::JobSpec;
use paddlecloud_pfs::content::hash_file;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::root::Kind;
use paddlecloud_pfs::{Existing, Node, RelPath, Root, RootError};

use crate::homes::{OURS, PackageLocation, Storage, StorageError, ours};
use crate::packages::{list_path, read_list, tree_path};
use links::{bad_name, latest_key, lead, point, run_link, show};

pub use prepare::HomeRuns;
pub use pruning::Outputs;
pub use resume::RunCheckpoints;

/// The paths of a run, below the user's home unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolders {
    /// `.paddlecloud/runs/<id>`.
    pub run: RelPath,
    /// The working directory: the run's copy, or the package in place.
    pub workdir: PackageLocation,
    pub output: RelPath,
    /// A folder that all workers of the run share and nobody else uses.
    pub rendezvous: RelPath,
    /// What workers see at `.paddlecloud/latest`.
    pub own_latest: RelPath,
}

impl RunFolders {
    /// The log folder of the trainer or parameter server with this index.
    pub fn node(&self, index: u32) -> RelPath {
        let node = self.output.child(format!("node_{index}").as_bytes());
        node.expect("a short plain name")
    }
}

impl Storage {
    /// The paths of a run. Creates nothing.
    pub(crate) fn run_folders(&self, job: &Job) -> Result<RunFolders, StorageError> {
        let id = job.id.as_str();
        let run = ours(&["runs", id]);
        let own = |name: &str| ours(&["runs", id, name]);
        let name = folder_name(job);
        let in_run = ours(&["runs", id, &name]);
        let (workdir, output) = match (&job.spec.snapshot, &job.spec.package) {
            (Some(_), _) => {
                let output = ours(&["runs", id, &name, "output"]);
                (PackageLocation::Home(in_run), output)
            }
            (None, Some(package)) => (self.place(&job.user, package)?, own("output")),
            (None, None) => (PackageLocation::Home(in_run), own("output")),
        };
        Ok(RunFolders {
            run,
            workdir,
            output,
            rendezvous: own("rendezvous"),
            own_latest: own("latest"),
        })
    }

    /// Prepares a run's folders, once per era; later calls find the work done.
    ///
    /// Nothing is synced: the uploaded package is, and after a power cut, in the next era, the copy is made again from it.
    pub fn prepare_run(&self, job: &Job, era: &str) -> Result<RunFolders, StorageError> {
        let home = self
            .home(&job.user)?
            .with_durability(paddlecloud_pfs::root::Durability::Relaxed);
        let folders = self.run_folders(job)?;
        let done = folders.run.child(b"prepared").expect("a plain name");
        if is_prepared(&home, &done, era)? {
            return Ok(folders);
        }
        home.make_dirs(&folders.rendezvous)?;
        home.make_dirs(&folders.own_latest)?;
        home.make_dirs(&ours(&["latest"]))?;
        home.make_dirs(&ours(&["packages"]))?;
        adopt_latest(&home, &folders.own_latest)?;
        match &job.spec.snapshot {
            Some(snapshot) => self.prepare_upload(&home, job, snapshot, &folders)?,
            None => self.prepare_in_place(&home, job, &folders)?,
        }
        home.write_file(&done, era.as_bytes(), Existing::Replace)?;
        Ok(folders)
    }

    /// Creates a folder in a prepared run.
    pub(crate) fn make_run_folder(&self, user: &UserName, path: &RelPath) -> Result<(), StorageError> {
        let home = self
            .home(user)?
            .with_durability(paddlecloud_pfs::root::Durability::Relaxed);
        Ok(home.make_dirs(path)?)
    }

    fn prepare_upload(
        &self,
        home: &Root,
        job: &Job,
        snapshot: &str,
        run: &RunFolders,
    ) -> Result<(), StorageError> {
        let id: PackageId = snapshot
            .parse()
            .map_err(|_| StorageError::NotFound(snapshot.to_owned()))?;
        let PackageLocation::Home(workdir) = &run.workdir else {
            unreachable!("an upload runs in the home")
        };
        copy_package(home, id, workdir)?;
        home.make_dirs(&run.output)?;
        let shown = self.shown_at(&job.user, &job.spec)?;
        let key = latest_key(&shown);
        point(
            home,
            &run.own_latest.child(key.as_bytes()).map_err(bad_name)?,
            &run_link(job, &folder_name(job)),
        )?;
        self.lead_to_latest(home, job, &key, &folder_name(job))?;
        show(home, &shown, &key)
    }

    fn prepare_in_place(&self, home: &Root, job: &Job, run: &RunFolders) -> Result<(), StorageError> {
        home.make_dirs(&run.output)?;
        let in_run = run.run.child(folder_name(job).as_bytes()).map_err(bad_name)?;
        match &run.workdir {
            PackageLocation::Home(package) if *package == in_run => home.make_dirs(&in_run)?,
            PackageLocation::Home(package) => {
                point(home, &in_run, &format!("../../../{package}"))?;
                let key = format!("{}.output", latest_key(package));
                point(
                    home,
                    &run.own_latest.child(key.as_bytes()).map_err(bad_name)?,
                    &run_link(job, "output"),
                )?;
                self.lead_to_latest(home, job, &key, "output")?;
                let output = package.child(b"output").map_err(bad_name)?;
                let up = "../".repeat(package.depth());
                lead(home, &output, &format!("{up}{OURS}/latest/{key}"))?;
            }
            // Nothing is written below /public; the output is in the run's folder.
            PackageLocation::Public(_) => {}
        }
        Ok(())
    }

    /// Makes a package's name point to this run, unless it points to a later one: a run that is prepared again after a
    /// restart of the machine does not become the latest.
    fn lead_to_latest(&self, home: &Root, job: &Job, key: &str, name: &str) -> Result<(), StorageError> {
        let locks = self.locks(&job.user);
        let _alone = locks.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let link = ours(&["latest", key]);
        let later = |found: &JobId| *found > job.id;
        if let Some(found) = linked_run(home, &link).filter(later)
            && home.exists(&ours(&["runs", found.as_str()]))?
        {
            return Ok(());
        }
        point(home, &link, &run_link(job, name))
    }

    /// The path below the home at which an uploaded package appears.
    fn shown_at(&self, user: &UserName, spec: &JobSpec) -> Result<RelPath, StorageError> {
        let package = spec.package.as_deref().unwrap_or_default();
        match self.place(user, package)? {
            PackageLocation::Home(below) if !below.is_root() => Ok(below),
            _ => Err(StorageError::BadName(package.to_owned())),
        }
    }

    /// The path at which an uploaded package appears, and the link that the server makes there.
    fn shown_link(&self, user: &UserName, spec: &JobSpec) -> Option<(RelPath, String)> {
        spec.snapshot.as_ref()?;
        let shown = self.shown_at(user, spec).ok()?;
        let link = format!("{OURS}/latest/{}", latest_key(&shown));
        Some((shown, link))
    }

    /// The path at which an uploaded package appears, unless the user's own file has that name.
    pub(crate) fn shown_workdir(&self, job: &Job) -> Option<RelPath> {
        let (shown, link) = self.shown_link(&job.user, &job.spec)?;
        let found = link_target(&*self.home(&job.user).ok()?, &shown)?;
        (found == link).then_some(shown)
    }

    /// The path at which an uploaded package would appear, if the user's own file has that name.
    pub fn in_the_way(
        &self,
        home: &Root,
        user: &UserName,
        spec: &JobSpec,
    ) -> Result<Option<RelPath>, StorageError> {
        let Some((shown, link)) = self.shown_link(user, spec) else {
            return Ok(None);
        };
        let is_ours = || link_target(home, &shown).is_some_and(|found| found == link);
        Ok((home.exists(&shown)? && !is_ours()).then_some(shown))
    }

    /// The run that an uploaded package's path points to, if the path is a link of the server.
    pub fn run_behind(&self, user: &UserName, path: &str) -> Result<Option<JobId>, StorageError> {
        match self.place(user, path)? {
            PackageLocation::Home(below) => Ok(run_at(&*self.home(user)?, &below)),
            PackageLocation::Public(_) => Ok(None),
        }
    }
}

/// The run that a path in the home points to, if it is a link of the server.
pub fn run_at(home: &Root, below: &RelPath) -> Option<JobId> {
    let target = link_target(home, below)?;
    let key = target.strip_prefix(OURS)?.strip_prefix("/latest/")?;
    linked_run(home, &format!("{OURS}/latest/{key}").parse().ok()?)
}

/// The names in a run's folder beside the one named after its job.
const OWN: [&str; 4] = ["prepared", "output", "rendezvous", "latest"];

/// The name of the folder for the job, inside its run's folder. Job names contain no `_`, so a renamed one is unique.
fn folder_name(job: &Job) -> String {
    let name = job.spec.name.as_str();
    match OWN.contains(&name) {
        true => format!("{name}_"),
        false => name.to_owned(),
    }
}

fn link_target(home: &Root, place: &RelPath) -> Option<String> {
    match home.stat_link(place).map(|meta| meta.kind) {
        Ok(Kind::Symlink(target)) => Some(String::from_utf8_lossy(target.as_bytes()).into_owned()),
        _ => None,
    }
}

/// The run that a link in `.paddlecloud/latest` points to.
fn linked_run(home: &Root, link: &RelPath) -> Option<JobId> {
    let target = link_target(home, link)?;
    target.strip_prefix("../runs/")?.split('/').next()?.parse().ok()
}

/// Copies a stored package for a run. Jobs can change stored packages: one that was changed is dropped and must be sent again.
fn copy_package(home: &Root, id: PackageId, copy: &RelPath) -> Result<(), StorageError> {
    let (tree, list) = (tree_path(id), list_path(id));
    let copied = home.copy_all(&tree, home, copy, Existing::Replace);
    let compared = copied.map_err(StorageError::from);
    let difference = match compared.and_then(|_| first_difference(home, &list, copy)) {
        Ok(None) => return Ok(()),
        Ok(Some(path)) => path,
        Err(error) if was_changed(&error) => tree.to_string(),
        Err(error) => return Err(error),
    };
    match home.remove(&list) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Err(StorageError::Changed(difference)),
    }
}

/// The first file of a copy whose content is not that in the package's list.
fn first_difference(home: &Root, list: &RelPath, copy: &RelPath) -> Result<Option<String>, StorageError> {
    for entry in read_list(home, list)?.entries() {
        let Node::File {
            digest: Some(digest), ..
        } = &entry.node
        else {
            continue;
        };
        let place = copy.join(&entry.path).map_err(bad_name)?;
        let (file, _) = home.open_file_no_links(&place)?;
        if hash_file(&file).map_err(StorageError::Disk)? != *digest {
            return Ok(Some(entry.path.to_string()));
        }
    }
    Ok(None)
}

/// Whether a job removed or replaced a part of a package, so that it cannot be read. A refused
/// access says nothing about the package: it may concern the folder of the run.
fn was_changed(error: &StorageError) -> bool {
    use RootError::{IsAFolder, NotAFile, NotAFolder, NotFound, ThroughLink};
    match error {
        StorageError::Manifest(_) => true,
        StorageError::Storage(error) => matches!(
            error,
            NotFound(_) | NotAFolder(_) | IsAFolder(_) | NotAFile(_) | ThroughLink(_)
        ),
        _ => false,
    }
}

/// Copies the current links to other packages' latest runs, for this run's workers.
fn adopt_latest(home: &Root, own: &RelPath) -> Result<(), StorageError> {
    for entry in home.list(&ours(&["latest"]))? {
        if let (Kind::Symlink(target), Some(name)) = (&entry.meta.kind, entry.path.name()) {
            point(
                home,
                &own.child(name).map_err(bad_name)?,
                &String::from_utf8_lossy(target.as_bytes()),
            )?;
        }
    }
    Ok(())
}

fn is_prepared(home: &Root, mark: &RelPath, era: &str) -> Result<bool, StorageError> {
    match home.open_file_no_links(mark) {
        Ok((file, _)) => Ok(std::io::read_to_string(file).is_ok_and(|found| found == era)),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
