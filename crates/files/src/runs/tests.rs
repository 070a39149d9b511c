//! Folders of runs: what each run finds, keeps and leads to.

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
