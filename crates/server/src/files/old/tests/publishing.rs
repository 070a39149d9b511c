//! Requests for a file while it is being published to a slow store.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use paddlecloud_api::error::ErrorName;
use paddlecloud_pfs::root::{Copied, DirEntry, Meta, Usage};
use paddlecloud_pfs::store::{FileStore, LocalStore, NewFile, StoreLimits};
use paddlecloud_pfs::{Place, Root};

use super::*;
use crate::files::Inner;

/// Far longer than any test here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A remote store that accepts a file only when the test allows it.
struct Slow {
    store: LocalStore,
    /// Notified before each file is stored.
    asks: Sender<()>,
    may: Mutex<Receiver<()>>,
}

impl FileStore for Slow {
    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn name(&self) -> String {
        "elsewhere".to_owned()
    }

    fn stat(&self, place: &Place) -> Result<Meta, RootError> {
        self.store.stat(place)
    }

    fn list(&self, place: &Place) -> Result<Vec<DirEntry>, RootError> {
        self.store.list(place)
    }

    fn make_folder(&self, place: &Place) -> Result<(), RootError> {
        self.store.make_folder(place)
    }

    fn remove(&self, place: &Place) -> Result<(), RootError> {
        self.store.remove(place)
    }

    fn remove_all(&self, place: &Place) -> Result<(), RootError> {
        self.store.remove_all(place)
    }

    fn rename(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        self.store.rename(from, to, existing)
    }

    fn copy(&self, from: &Place, to: &Place, existing: Existing) -> Result<Copied, RootError> {
        self.store.copy(from, to, existing)
    }

    fn open(&self, place: &Place) -> Result<Box<dyn ReadAt>, RootError> {
        self.store.open(place)
    }

    fn begin(&self, place: &Place, attributes: FileAttributes) -> Result<Box<dyn NewFile>, RootError> {
        self.asks.send(()).unwrap();
        lock(&self.may).recv_timeout(LIMIT).unwrap();
        self.store.begin(place, attributes)
    }

    fn usage(&self, place: &Place) -> Result<Usage, RootError> {
        self.store.usage(place)
    }

    fn folder(&self, _: &Space) -> Result<Option<Root>, RootError> {
        Ok(None)
    }

    fn sweep(&self, space: &Space, age: Duration) -> Result<u64, RootError> {
        self.store.sweep(space, age)
    }
}

/// Files in a slow store, one of which is being sent there.
struct Elsewhere {
    all: Fixture,
    there: tempfile::TempDir,
    asked: Receiver<()>,
    let_go: Sender<()>,
}

impl Elsewhere {
    fn new(old: &[u8]) -> Elsewhere {
        let mut all = Fixture::new(b"");
        let there = tempfile::tempdir().unwrap();
        let (asks, asked) = channel();
        let (let_go, may) = channel();
        let store = Slow {
            store: LocalStore::open(there.path()).unwrap(),
            asks,
            may: Mutex::new(may),
        };
        let inner = std::sync::Arc::into_inner(all.files.0).unwrap();
        all.files = Files(std::sync::Arc::new(Inner {
            store: std::sync::Arc::new(store),
            remote: true,
            ..inner
        }));
        let elsewhere = Elsewhere {
            all,
            there,
            asked,
            let_go,
        };
        std::fs::create_dir_all(elsewhere.file().parent().unwrap()).unwrap();
        std::fs::write(elsewhere.file(), old).unwrap();
        elsewhere
    }

    fn file(&self) -> std::path::PathBuf {
        self.there.path().join("home/me/data")
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }

    /// Sends the last range on a thread; returns once the store has been asked to take the file.
    fn publish(&self, offset: u64, range: &[u8]) -> JoinHandle<Result<(), FilesError>> {
        let mut sending = self.all.begin(offset, range.len() as u64);
        sending.feed(range).unwrap();
        let publishing = std::thread::spawn(move || sending.finish());
        self.asked.recv_timeout(LIMIT).unwrap();
        publishing
    }

    fn let_go(&self, publishing: JoinHandle<Result<(), FilesError>>) {
        self.let_go.send(()).unwrap();
        publishing.join().unwrap().unwrap();
    }

    /// Runs `work` on its own thread; it must not wait for the publish.
    fn meanwhile<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Files, &Caller, &PfsPath) -> T + Send + 'static,
    ) -> T {
        let (files, me, path) = (self.all.files.clone(), self.all.me.clone(), self.all.path.clone());
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(work(&files, &me, &path)));
        told.recv_timeout(LIMIT)
            .expect("nobody waits for what is being published")
    }
}

#[test]
fn who_asks_about_a_file_that_is_being_published_is_answered_at_once() {
    let (old, new) = (pattern(1, RANGE), pattern(2, RANGE));
    let elsewhere = Elsewhere::new(&old);
    elsewhere.all.announce(RANGE);
    let publishing = elsewhere.publish(0, &new);

    let told = elsewhere.meanwhile(|files, me, path| files.old_range_sum(me, path, 0, RANGE));
    let told = told.unwrap();
    assert_eq!(told.checksum, md5(&old), "the old one is there until then");
    let sent = elsewhere.meanwhile(|files, me, path| files.old_post(me, path, 0, RANGE).map(drop));
    assert_eq!(sent.unwrap_err().refusal().error, ErrorName::NotFound);
    let expired = elsewhere.meanwhile(|files, _, _| files.0.old_writes.expire_unused_for(Duration::ZERO));
    assert_eq!(expired, 0);
    let begun = elsewhere.meanwhile(|files, me, _| files.upload_list(me));
    let begun = begun.unwrap().remove(0);
    assert_eq!((begun.size, begun.arrived), (RANGE, RANGE), "it is still shown");
    let given_up = elsewhere.meanwhile(move |files, me, _| files.upload_discard(me, &begun.id));
    assert_eq!(given_up.unwrap_err().refusal().error, ErrorName::Unavailable);

    assert!(elsewhere.content() == old);
    elsewhere.let_go(publishing);
    assert!(elsewhere.content() == new);
    assert!(elsewhere.asked.try_recv().is_err(), "it is stored once");
    assert_eq!(elsewhere.all.begun(), 0);
}

#[test]
fn who_publishes_one_file_keeps_nobody_from_the_others() {
    let elsewhere = Elsewhere::new(b"old");
    let other: PfsPath = "/pfs/dc/home/me/other".parse().unwrap();
    elsewhere.all.announce(RANGE);
    elsewhere
        .all
        .files
        .old_touch(&elsewhere.all.me, &other, RANGE)
        .unwrap();
    let publishing = elsewhere.publish(0, &pattern(2, RANGE));
    let left = elsewhere.meanwhile(move |files, me, _| {
        let begun = files.upload_list(me).unwrap();
        let free = begun.iter().find(|one| one.path.0 == other).unwrap();
        files.upload_discard(me, &free.id).unwrap();
        files.upload_list(me).unwrap()
    });
    let left: Vec<PfsPath> = left.into_iter().map(|one| one.path.0).collect();
    assert_eq!(left, std::slice::from_ref(&elsewhere.all.path));
    elsewhere.let_go(publishing);
}

#[test]
fn what_is_announced_while_an_older_one_is_published_stays() {
    let (older, newer) = (pattern(2, RANGE), pattern(3, RANGE));
    let elsewhere = Elsewhere::new(&pattern(1, RANGE));
    elsewhere.all.announce(RANGE);
    let publishing = elsewhere.publish(0, &older);
    let announced = elsewhere.meanwhile(|files, me, path| files.old_touch(me, path, RANGE));
    announced.unwrap();
    elsewhere.let_go(publishing);
    assert!(elsewhere.content() == older, "it was complete");
    assert_eq!(elsewhere.all.begun(), 1, "the newer one");
    let publishing = elsewhere.publish(0, &newer);
    elsewhere.let_go(publishing);
    assert!(elsewhere.content() == newer);
    assert_eq!(elsewhere.all.begun(), 0);
}

#[test]
fn a_file_that_cannot_be_published_is_over() {
    let elsewhere = Elsewhere::new(&pattern(1, RANGE));
    elsewhere.all.announce(RANGE);
    let publishing = elsewhere.publish(0, &pattern(2, RANGE));
    std::fs::remove_file(elsewhere.file()).unwrap();
    std::fs::create_dir(elsewhere.file()).unwrap();
    elsewhere.let_go.send(()).unwrap();
    publishing.join().unwrap().unwrap_err();
    assert_eq!(elsewhere.all.begun(), 0, "the client announces it again");
}
