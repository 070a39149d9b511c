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
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use paddlecloud_core::names::JobId;
    use paddlecloud_core::spec::JobSpec;

    use super::*;

    struct Fixture {
        _folder: tempfile::TempDir,
        storage: Storage,
        user: UserName,
        home: PathBuf,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let storage = Storage::open(folder.path(), "local".parse().unwrap()).unwrap();
            let user: UserName = "me".parse().unwrap();
            storage.home(&user).unwrap();
            let home = storage.home_path(&user);
            Fixture {
                _folder: folder,
                storage,
                user,
                home,
            }
        }

        fn snapshot(&self, text: &str) -> String {
            let source = tempfile::tempdir().unwrap();
            fs::write(source.path().join("train.py"), text).unwrap();
            let scanned = paddlecloud_pfs::package::scan(source.path(), &Default::default()).unwrap();
            let manifest = scanned.manifest().unwrap();
            let id = manifest.id();
            let tree = self.home.join(tree_path(id).as_path());
            fs::create_dir_all(&tree).unwrap();
            fs::write(tree.join("train.py"), text).unwrap();
            fs::write(self.home.join(list_path(id).as_path()), manifest.to_json()).unwrap();
            id.to_string()
        }

        fn job(&self, number: u32, snapshot: Option<String>) -> Job {
            let mut spec = JobSpec::new("word-emb".parse().unwrap());
            spec.package = Some("/pfs/local/home/me/job_word_emb".into());
            spec.snapshot = snapshot;
            let now = jiff::Timestamp::UNIX_EPOCH;
            Job::new(
                JobId::new(1, number),
                self.user.clone(),
                Arc::new(spec),
                None,
                0,
                now,
            )
        }

        /// The working directory of a worker that sees only real paths.
        fn workdir(&self, folders: &RunFolders) -> PathBuf {
            match &folders.workdir {
                PackageLocation::Home(below) => self.home.join(below.as_path()),
                PackageLocation::Public(below) => self.storage.public_path().join(below.as_path()),
            }
        }

        fn output(&self, job: &Job) -> PathBuf {
            self.home
                .join(self.storage.run_folders(job).unwrap().output.as_path())
        }
    }

    #[test]
    fn a_job_named_like_a_folder_of_its_run_keeps_its_files_and_output() {
        let fixture = Fixture::new();
        for (number, name) in (0..).zip(OWN) {
            let mut job = fixture.job(number, Some(fixture.snapshot("one")));
            Arc::make_mut(&mut job.spec).name = name.parse().unwrap();
            for boot in ["first", "second"] {
                let folders = fixture.storage.prepare_run(&job, boot).unwrap();
                let program = fixture.workdir(&folders).join("train.py");
                assert_eq!(fs::read_to_string(program).unwrap(), "one", "{name}");
                fs::write(fixture.output(&job).join("model"), name).unwrap();
                let shown = fixture.home.join("job_word_emb/output/model");
                assert_eq!(fs::read_to_string(shown).unwrap(), name);
            }
        }
    }

    #[test]
    fn an_upload_appears_under_its_name_and_leads_to_the_latest_run() {
        let fixture = Fixture::new();
        let (first, second) = (
            fixture.job(1, Some(fixture.snapshot("one"))),
            fixture.job(2, Some(fixture.snapshot("two"))),
        );
        fixture.storage.prepare_run(&first, "boot").unwrap();
        fs::write(fixture.output(&first).join("model"), "1").unwrap();
        assert_eq!(
            fs::read_to_string(fixture.home.join("job_word_emb/output/model")).unwrap(),
            "1"
        );
        fixture.storage.prepare_run(&second, "boot").unwrap();
        assert_eq!(
            fs::read_to_string(fixture.home.join("job_word_emb/train.py")).unwrap(),
            "two"
        );
        assert!(!fixture.home.join("job_word_emb/output/model").exists());
        assert_eq!(
            fs::read_to_string(fixture.output(&first).join("model")).unwrap(),
            "1",
            "the first output stays"
        );
    }

    #[test]
    fn a_run_keeps_its_files_when_the_snapshot_or_the_next_run_changes() {
        let fixture = Fixture::new();
        let job = fixture.job(1, Some(fixture.snapshot("one")));
        let folders = fixture.storage.prepare_run(&job, "boot").unwrap();
        let mine = fixture.workdir(&folders).join("train.py");
        fs::write(&mine, "changed by the run").unwrap();
        fixture
            .storage
            .prepare_run(&fixture.job(2, Some(fixture.snapshot("one"))), "boot")
            .unwrap();
        assert_eq!(fs::read_to_string(mine).unwrap(), "changed by the run");
        assert_eq!(
            fs::read_to_string(fixture.home.join("job_word_emb/train.py")).unwrap(),
            "one"
        );
    }

    #[test]
    fn a_run_adds_only_the_output_link_to_a_folder_of_the_users_own() {
        let fixture = Fixture::new();
        let own = fixture.home.join("job_word_emb");
        fs::create_dir_all(own.join("data")).unwrap();
        fs::write(own.join("data/part-0"), "x").unwrap();
        let names = |folder: &std::path::Path| {
            let entries = fs::read_dir(folder).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        // A run in place leaves a link of the server, which the next upload replaces.
        fixture
            .storage
            .prepare_run(&fixture.job(1, None), "boot")
            .unwrap();
        for number in 2..4 {
            let job = fixture.job(number, Some(fixture.snapshot("one")));
            let in_the_way = {
                let home = fixture.storage.home(&job.user).unwrap();
                fixture.storage.in_the_way(&home, &job.user, &job.spec).unwrap()
            };
            assert_eq!(in_the_way, Some("job_word_emb".parse().unwrap()));
            let folders = fixture.storage.prepare_run(&job, "boot").unwrap();
            let workdir = fixture.workdir(&folders);
            assert_eq!(names(&workdir), ["output", "train.py"]);
            assert_eq!(names(&own), ["data", "output"]);
            fs::write(fixture.output(&job).join("m"), number.to_string()).unwrap();
            let found = fs::read_to_string(own.join("output/m")).unwrap();
            assert_eq!(found, number.to_string());
        }
    }

    #[test]
    fn a_package_in_place_gets_an_output_of_its_own_per_run() {
        let fixture = Fixture::new();
        let package = fixture.home.join("job_word_emb");
        fs::create_dir_all(package.join("output")).unwrap();
        fs::write(package.join("output/old"), "by hand").unwrap();
        let (first, second) = (fixture.job(1, None), fixture.job(2, None));
        fixture.storage.prepare_run(&first, "boot").unwrap();
        fs::write(package.join("output/model"), "1").unwrap();
        fixture.storage.prepare_run(&second, "boot").unwrap();
        assert!(!package.join("output/model").exists());
        assert_eq!(
            fs::read_to_string(fixture.output(&first).join("model")).unwrap(),
            "1"
        );
        assert_eq!(
            fs::read_to_string(package.join("output.1/old")).unwrap(),
            "by hand"
        );
    }

    #[test]
    fn a_changed_package_is_not_run_and_must_be_sent_again() {
        let changes: [fn(&Path); 5] = [
            |tree| fs::write(tree.join("train.py"), "POISONED").unwrap(),
            |tree| fs::remove_file(tree.join("train.py")).unwrap(),
            |tree| {
                fs::remove_file(tree.join("train.py")).unwrap();
                fs::create_dir(tree.join("train.py")).unwrap();
            },
            |tree| fs::remove_dir_all(tree).unwrap(),
            |tree| fs::write(tree.with_extension("json"), "{").unwrap(),
        ];
        for change in changes {
            let fixture = Fixture::new();
            let snapshot = fixture.snapshot("good");
            let id: PackageId = snapshot.parse().unwrap();
            change(&fixture.home.join(tree_path(id).as_path()));
            let refused = fixture
                .storage
                .prepare_run(&fixture.job(1, Some(snapshot)), "boot");
            assert!(matches!(refused, Err(StorageError::Changed(_))), "{refused:?}");
            assert!(!fixture.storage.has_package(&fixture.user, id).unwrap());
        }
    }

    #[test]
    fn concurrent_preparations_of_one_package_do_not_conflict() {
        let fixture = Fixture::new();
        let snapshot = fixture.snapshot("one");
        let jobs: Vec<Job> = (1..=16)
            .map(|number| fixture.job(number, Some(snapshot.clone())))
            .collect();
        std::thread::scope(|scope| {
            let storage = &fixture.storage;
            for job in &jobs {
                scope.spawn(move || storage.prepare_run(job, "boot").unwrap());
            }
        });
        assert_eq!(
            fs::read_to_string(fixture.home.join("job_word_emb/train.py")).unwrap(),
            "one"
        );
    }

    #[test]
    fn the_path_of_an_uploaded_package_identifies_its_run() {
        let fixture = Fixture::new();
        let job = fixture.job(1, Some(fixture.snapshot("one")));
        fixture.storage.prepare_run(&job, "boot").unwrap();
        let behind = |path: &str| fixture.storage.run_behind(&fixture.user, path).unwrap();
        assert_eq!(behind("/pfs/local/home/me/job_word_emb"), Some(job.id.clone()));
        assert_eq!(behind("/pfs/local/home/me/job_word_emb/output"), None);
        assert_eq!(behind("/pfs/local/home/me"), None);
    }

    #[test]
    fn a_run_that_is_prepared_again_does_not_become_the_latest() {
        let fixture = Fixture::new();
        let (first, second) = (
            fixture.job(1, Some(fixture.snapshot("one"))),
            fixture.job(2, Some(fixture.snapshot("two"))),
        );
        let text = || fs::read_to_string(fixture.home.join("job_word_emb/train.py")).unwrap();
        fixture.storage.prepare_run(&first, "boot").unwrap();
        fixture.storage.prepare_run(&second, "boot").unwrap();
        fixture.storage.prepare_run(&first, "after a restart").unwrap();
        assert_eq!(text(), "two");
        let removed = ours(&["runs", second.id.as_str()]);
        fs::remove_dir_all(fixture.home.join(removed.as_path())).unwrap();
        fixture.storage.prepare_run(&first, "after another").unwrap();
        assert_eq!(text(), "one", "a link never leads nowhere");
    }

    #[test]
    fn a_second_preparation_changes_nothing() {
        let fixture = Fixture::new();
        let job = fixture.job(1, Some(fixture.snapshot("one")));
        fixture.storage.prepare_run(&job, "boot").unwrap();
        fs::write(fixture.output(&job).join("model"), "1").unwrap();
        fixture.storage.prepare_run(&job, "boot").unwrap();
        assert!(fixture.output(&job).join("model").exists());
    }
}
