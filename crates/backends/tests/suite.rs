//! The port's suite against real services. `cargo xtask test --with ceph,hdfs,s3` starts them and says where they are.

use paddlecloud_pfs::root::FileAttributes;
use paddlecloud_pfs::store::conformance;
use paddlecloud_pfs::store::{FileStore, LocalStore};
use paddlecloud_pfs::{Existing, Place, RootError, Space};

/// Where a service was started.
fn service(variable: &str) -> String {
    let place = std::env::var(variable).unwrap_or_default();
    assert!(
        !place.is_empty(),
        "`{variable}` names no service; see `cargo xtask test --help`"
    );
    place
}

#[cfg(feature = "hdfs")]
#[test]
#[ignore = "needs HDFS"]
fn hdfs_passes_the_suite() {
    let url = service("PADDLECLOUD_TEST_HDFS");
    let settings = paddlecloud_backends::HdfsSettings {
        url: format!("{url}/suite").parse().unwrap(),
        user: None,
        config: None,
        replication: Some(1),
    };
    conformance::check(&*paddlecloud_backends::open_hdfs(&settings).unwrap());
}

#[cfg(feature = "hdfs")]
#[test]
#[ignore = "needs HDFS"]
fn hdfs_drafts_are_not_counted_and_only_the_next_server_sweeps_them() {
    let url = service("PADDLECLOUD_TEST_HDFS");
    let settings = paddlecloud_backends::HdfsSettings {
        url: format!("{url}/drafts").parse().unwrap(),
        user: None,
        config: None,
        replication: Some(1),
    };
    let open = || paddlecloud_backends::open_hdfs(&settings).unwrap();
    let before = open();
    before.make_folder(&anns("d")).unwrap();
    write(&*before, &anns("d/f"), b"content").unwrap();
    let mut draft = before.begin(&anns("lost"), FileAttributes::default()).unwrap();
    draft.append(&vec![7; 1 << 20]).unwrap();
    // As a process does that is killed: nothing is cleaned up.
    std::mem::forget(draft);
    let usage = before.usage(&anns("")).unwrap();
    assert_eq!((usage.bytes, usage.files, usage.folders), (7, 1, 1));

    let sweep = |store: &dyn FileStore| store.sweep(&anns("").space, Default::default()).unwrap();
    assert_eq!(sweep(&*before), 0, "somebody is at it");
    let next = open();
    let soon = std::time::Duration::from_secs(3600);
    assert_eq!(next.sweep(&anns("").space, soon).unwrap(), 0, "it is young");
    assert_eq!(sweep(&*next), 1);
    assert_eq!(sweep(&*next), 0);
    next.remove_all(&anns("d")).unwrap();
}

#[cfg(feature = "s3")]
#[test]
#[ignore = "needs S3"]
fn s3_passes_the_suite() {
    let endpoint = service("PADDLECLOUD_TEST_S3");
    let notes = tempfile::tempdir().unwrap();
    let settings = s3_settings(&endpoint, "secret");
    let store = paddlecloud_backends::open_s3(&settings, notes.path()).unwrap();
    conformance::check(&*store);
    assert_eq!(
        std::fs::read_dir(notes.path()).unwrap().count(),
        0,
        "no note stays"
    );
}

#[cfg(feature = "s3")]
#[test]
#[ignore = "needs S3"]
fn s3_uploads_of_a_killed_server_are_aborted_by_the_next() {
    let endpoint = service("PADDLECLOUD_TEST_S3");
    let notes = tempfile::tempdir().unwrap();
    let settings = s3_settings(&endpoint, "secret");
    let open = || paddlecloud_backends::open_s3(&settings, notes.path()).unwrap();
    let space = Space::Home("killed".parse().unwrap());
    let place = Place {
        space: space.clone(),
        path: "large".parse().unwrap(),
    };
    let before = open();
    let mut file = before.begin(&place, FileAttributes::default()).unwrap();
    file.append(&vec![7; 20 << 20]).unwrap();
    // As a process does that is killed: nothing is cleaned up.
    std::mem::forget(file);
    assert_eq!(
        before.sweep(&space, Default::default()).unwrap(),
        0,
        "still in use"
    );

    let next = open();
    assert_eq!(next.sweep(&space, Default::default()).unwrap(), 1);
    assert_eq!(next.sweep(&space, Default::default()).unwrap(), 0);
    assert_eq!(std::fs::read_dir(notes.path()).unwrap().count(), 0);
}

/// A concurrent writer writes into a folder while it moves: what it wrote stays or moves, and is never lost.
#[cfg(feature = "s3")]
#[test]
#[ignore = "needs S3"]
fn files_written_to_an_s3_folder_during_its_move_are_not_lost() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let endpoint = service("PADDLECLOUD_TEST_S3");
    let notes = tempfile::tempdir().unwrap();
    let store = paddlecloud_backends::open_s3(&s3_settings(&endpoint, "secret"), notes.path()).unwrap();
    let at = |path: &str| Place {
        space: Space::Home("moving".parse().unwrap()),
        path: path.parse().unwrap(),
    };
    let write = |path: &str| write(&*store, &at(path), b"content");
    let _ = store.remove_all(&at("top"));
    store.make_folder(&at("top/from")).unwrap();
    for number in 0..100 {
        write(&format!("top/from/{number}")).unwrap();
    }
    let moved = AtomicBool::new(false);
    let arrived = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let names = (0..).map(|number| format!("late-{number}"));
            let running = names.take_while(|_| !moved.load(Ordering::Relaxed));
            let written = running.filter(|name| write(&format!("top/from/{name}")).is_ok());
            written.collect::<Vec<String>>()
        });
        let renamed = store.rename(&at("top/from"), &at("top/to"), Existing::Keep);
        moved.store(true, Ordering::Relaxed);
        // What arrives after the second look at the folder stays, too; nobody can tell that any more.
        let is_expected = matches!(renamed, Ok(()) | Err(paddlecloud_pfs::RootError::Changing(_)));
        assert!(is_expected, "{renamed:?}");
        writer.join().unwrap()
    });
    assert!(!arrived.is_empty(), "somebody wrote meanwhile");
    let exists = |path: String| store.stat(&at(&path)).is_ok();
    for name in arrived {
        let found = exists(format!("top/from/{name}")) || exists(format!("top/to/{name}"));
        assert!(found, "{name} is lost");
    }
    assert!((0..100).all(|number| exists(format!("top/to/{number}"))));
    store.remove_all(&at("top")).unwrap();
}

#[cfg(feature = "s3")]
fn s3_settings(endpoint: &str, secret: &str) -> paddlecloud_backends::S3Settings {
    let mut settings =
        paddlecloud_backends::S3Settings::from_url("s3://bucket/suite").expect("a good address");
    settings.endpoint = Some(endpoint.to_owned());
    // What it knows of an object lies in a file whose name contains the key.
    settings.longest_key = 120;
    settings.access_key = Some("paddlecloud".to_owned());
    settings.secret_key = Some(paddlecloud_backends::SecretText::new(secret));
    settings
}

#[cfg(feature = "s3")]
#[test]
#[ignore = "needs S3"]
fn s3_with_a_wrong_secret_is_refused() {
    let endpoint = service("PADDLECLOUD_TEST_S3");
    let notes = tempfile::tempdir().unwrap();
    let refused = paddlecloud_backends::open_s3(&s3_settings(&endpoint, "wrong"), notes.path());
    let error = refused.err().expect("a wrong secret opens nothing");
    assert!(!format!("{error:?}").contains("wrong\""), "{error:?}");
}

#[cfg(any(feature = "hdfs", feature = "s3"))]
#[test]
fn an_unreachable_service_is_reported() {
    use std::net::TcpListener;
    // A port that was free a moment ago and that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    #[cfg(feature = "hdfs")]
    {
        let settings = paddlecloud_backends::HdfsSettings {
            url: format!("hdfs://127.0.0.1:{port}/x").parse().unwrap(),
            user: None,
            config: None,
            replication: None,
        };
        let error = paddlecloud_backends::open_hdfs(&settings)
            .err()
            .expect("nobody listens");
        assert_eq!(
            error.to_string(),
            format!("`hdfs://127.0.0.1:{port}/x` cannot be reached")
        );
    }
    #[cfg(feature = "s3")]
    {
        let notes = tempfile::tempdir().unwrap();
        let settings = s3_settings(&format!("http://127.0.0.1:{port}"), "x");
        let error = paddlecloud_backends::open_s3(&settings, notes.path());
        let error = error.err().expect("nobody listens").to_string();
        assert!(error.ends_with("cannot be reached"), "{error}");
    }
}

#[test]
#[ignore = "needs CephFS"]
fn cephfs_passes_the_suite() {
    let mount = service("PADDLECLOUD_TEST_CEPHFS");
    let folder = tempfile::tempdir_in(mount).unwrap();
    conformance::check(&LocalStore::open(folder.path()).unwrap());
}

/// Writes a file as the service does; what a failed write leaves is dropped.
fn write(store: &dyn FileStore, place: &Place, content: &[u8]) -> Result<(), RootError> {
    let mut file = store.begin(place, FileAttributes::default())?;
    for piece in content.chunks(100_000) {
        file.append(piece)?;
    }
    file.publish(Existing::Replace).map(drop)
}

/// What a small file holds.
fn content(store: &dyn FileStore, place: &Place) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let file = store.open(place).expect("a file can be opened");
    let read = file.read_at(&mut bytes, 0).expect("a file can be read");
    bytes.truncate(read);
    bytes
}

/// A file of `ann`, who has a quota.
fn anns(path: &str) -> Place {
    Place {
        space: Space::Home("ann".parse().expect("a plain name")),
        path: path.parse().expect("a path of a test"),
    }
}

/// A write into a home that is full by the backend's own word is refused, and changes nothing.
fn is_refused_by_the_backends_quota(store: &dyn FileStore) {
    let names = || {
        let entries = store.list(&anns("")).expect("a home can be listed").into_iter();
        entries.map(|entry| entry.path).collect::<Vec<_>>()
    };
    let before = names();
    let written = write(store, &anns("f"), &vec![7; 3_000_000]);
    let error = written.expect_err("there is no room");
    assert!(matches!(error, RootError::FsQuota(_)), "{error:?}");
    assert_eq!(content(store, &anns("f")), b"the old one");
    assert_eq!(names(), before);
    let drafts = store
        .sweep(&anns("").space, Default::default())
        .expect("a home can be swept");
    assert_eq!(drafts, 0, "nothing staged is left");
}

#[test]
#[ignore = "needs CephFS"]
fn cephfs_reports_and_enforces_its_own_quota() {
    let mount = service("PADDLECLOUD_TEST_CEPHFS");
    let folder = tempfile::tempdir_in(mount).unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    assert_eq!(store.quota(&anns("").space).unwrap(), None);
    write(&store, &anns("f"), b"the old one").unwrap();
    let set = |attribute: &str, value: &str, at: &str| {
        let set = std::process::Command::new("setfattr")
            .args(["-n", attribute, "-v", value])
            .arg(folder.path().join(at))
            .status();
        assert!(set.is_ok_and(|status| status.success()), "setfattr sets a quota");
    };
    write(&store, &anns("filler"), &vec![7; 1_500_000]).unwrap();
    set("ceph.quota.max_bytes", "1000000", "home/ann");
    assert_eq!(store.quota(&anns("").space).unwrap(), Some(1_000_000));
    wait_until_full(&store);
    is_refused_by_the_backends_quota(&store);

    // Also one that is set for all homes together.
    set("ceph.quota.max_bytes", "0", "home/ann");
    set("ceph.quota.max_bytes", "1200000", "home");
    wait_until_full(&store);
    is_refused_by_the_backends_quota(&store);
    set("ceph.quota.max_bytes", "0", "home");
    write(&store, &anns("f"), b"the new one").expect("nothing is in the way any more");
}

/// CephFS counts what is written some seconds later, and refuses writes from then on.
fn wait_until_full(store: &dyn FileStore) {
    let started = std::time::Instant::now();
    while write(store, &anns("probe"), &[7; 1000]).is_ok() {
        assert!(started.elapsed().as_secs() < 120, "it is full in the end");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(store.remove(&anns("probe")));
}

#[cfg(feature = "hdfs")]
#[test]
#[ignore = "needs HDFS"]
fn hdfs_reports_its_own_quota_without_replicas_and_enforces_it() {
    let (url, classes) = (
        service("PADDLECLOUD_TEST_HDFS"),
        service("PADDLECLOUD_TEST_HDFS_CLASSES"),
    );
    let settings = paddlecloud_backends::HdfsSettings {
        url: format!("{url}/quota").parse().unwrap(),
        user: None,
        config: None,
        replication: Some(2),
    };
    let open = || paddlecloud_backends::open_hdfs(&settings).unwrap();
    let store = open();
    let admin = |words: &[&str]| {
        let done = std::process::Command::new("java")
            .args([
                "-cp",
                &classes,
                "org.apache.hadoop.hdfs.tools.DFSAdmin",
                "-fs",
                &url,
            ])
            .args(words)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "dfsadmin sets a quota");
    };
    let set = |bytes: &str| admin(&["-setSpaceQuota", bytes, "/quota/home/ann"]);
    let limit = || store.quota(&anns("").space).unwrap();
    assert_eq!(limit(), None, "nobody has that home");
    store.make_folder(&anns("")).unwrap();
    assert_eq!(limit(), None);
    // The cluster counts both copies of every block, users count their files once.
    set("800m");
    assert_eq!(limit(), Some(400 << 20));
    write(&*store, &anns("big"), &vec![7; 3_000_000]).unwrap();
    assert_eq!(store.usage(&anns("")).unwrap().bytes, 3_000_000);
    assert_eq!(limit(), Some(400 << 20), "what is there counts on both sides");

    store.remove(&anns("big")).unwrap();
    write(&*store, &anns("f"), b"the old one").unwrap();
    set("100m");
    is_refused_by_the_backends_quota(&*store);
    // The cluster sets a whole block aside for a file that is written.
    let error = write(&*store, &anns("g"), b"small").unwrap_err();
    assert!(matches!(error, RootError::FsQuota(_)), "{error}");

    // The same with a limit for all homes together; a store that is opened again has no earlier one in memory.
    admin(&["-clrSpaceQuota", "/quota/home/ann"]);
    admin(&["-setSpaceQuota", "200m", "/quota/home"]);
    is_refused_by_the_backends_quota(&*open());
    admin(&["-clrSpaceQuota", "/quota/home"]);
    store.remove_all(&anns("f")).unwrap();
}
